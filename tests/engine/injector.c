/* Presses Ctrl-C at the n-th event of the calling thread: a line is begun, a function is called or left. */

#include <Python.h>
#include <frameobject.h>
#include <signal.h>

static long count = 0, target = -1;

static int
trace(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    if (what != PyTrace_EXCEPTION && ++count == target)
        PyErr_SetInterruptEx(SIGINT);
    return 0;
}

static PyObject *
start(PyObject *self, PyObject *n)
{
    target = PyLong_AsLong(n);
    if (target == -1 && PyErr_Occurred())
        return NULL;
    count = 0;
    PyEval_SetTrace(trace, NULL);
    Py_RETURN_NONE;
}

static PyObject *
stop(PyObject *self, PyObject *unused)
{
    PyEval_SetTrace(NULL, NULL);
    target = -1;
    return PyLong_FromLong(count);
}

static PyMethodDef methods[] = {
    {"start", start, METH_O, "Count from now on; SIGINT at the n-th event, never for 0."},
    {"stop", stop, METH_NOARGS, "Count no more; how many events there were."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "injector", NULL, -1, methods};

PyMODINIT_FUNC
PyInit_injector(void)
{
    return PyModule_Create(&definition);
}
