"""Exercises of the notebooks 00 to 04, 12 and 14."""

# ruff: noqa: E501 - a table

from __future__ import annotations

from tests.course.exercises.exercise import Changes, Exercise, ch


def wheel(old: str, new: str) -> Changes:
    """Return a replacement in the source that the profiler proposes."""
    return ch("seen.code.source", f"seen.code.source.replace({old!r}, {new!r})")


def meter(old: str, new: str) -> Changes:
    """Return the original source of the meter, with a replacement, in place of the profiler's."""
    return ch("seen.code.source", f"{METER}.replace({old!r}, {new!r})")


METER = "__import__('pathlib').Path('meter_reading/models/meter/1/model.py').read_text()"
WHEELS = """for box in boxes:
            (digit,) = self.call("read_wheel", {"WHEEL": crop(photo, box)[np.newaxis]}, ["DIGIT"])
            digits.append(digit)
"""
YESTERDAY = 'digits = [pb_utils.get_input_tensor_by_name(request, "YESTERDAY").as_numpy() + 34]\n'
THREADS = """from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(5) as pool:
            crops = [crop(photo, box)[np.newaxis] for box in boxes]
            digits = [digit for (digit,) in pool.map(lambda w: self.call("read_wheel", {"WHEEL": w}, ["DIGIT"]), crops)]
"""
ONE_REQUEST = """crops = np.stack([crop(photo, box) for box in boxes])
        (digits,) = self.call("read_wheel", {"WHEEL": crops}, ["DIGIT"])
"""
BLANK = (
    (ch("self.answer(-1, 1.0)", "self.answer(0, 1.0)"), "Response 1: got 0, expected -1"),
    (ch("np.array([digit], np.int32)", "np.array([digit])"), "DIGIT is INT64, expected INT32"),
    (ch('pb_utils.Tensor("CONFIDENCE", np.array([confidence], np.float32)),', ""), "no CONFIDENCE. Its outputs are DIGIT"),
    (ch("if not image.as_numpy().any()", "if True"), "Every response has the same value, -1"),
    (ch("if not image.as_numpy().any()", "if False"), "1 request failed"),
    (ch("self.answer(-1, 1.0)", 'self.answer("none", 1.0)'), "invalid literal for int()"),
    (ch("np.array([digit], np.int32)", "np.array([digit, digit], np.int32)"), "has 2 values, expected 1"),
    (ch("self.answer(-1, 1.0)", "self.answer(-1, float('nan'))"), "CONFIDENCE"),
    (ch("if not image.as_numpy().any()", "if not image.as_numpy()[0].any()"), "for other inputs, DIGIT: [-1]"),
)  # fmt: skip
OVERLAP = (
    (ch("await asyncio.gather(*[self.ask(", "[await c for c in ([self.ask(", " for image in images])", " for image in images])]"),
     "each `await` waits for its response"),
    (ch("await request.async_exec()", "request.exec()"), "`exec` blocks until its response arrives"),
    (ch("for image in images])", "for image in images[:3]])"), "There were 3 requests of scanner in all: send 4"),
    (ch("await asyncio.gather(*[self.ask(", "[*await asyncio.gather(*[self.ask(", " for image in images])",
        " for image in images[:2]]), *await asyncio.gather(*[self.ask('scanner', 'IMAGE', i, 'SCAN') for i in images[2:]])]"),
     "At most 2 requests were in flight"),
    (ch("scans = await asyncio.gather(*[self.ask(", "scans = [await s if n > 3 else s for n, s in enumerate([self.ask(",
        " for image in images])", " for image in images])]\n        scans[:4] = await asyncio.gather(*scans[:4])"),
     "then scanner, then scanner"),
    (ch("await asyncio.gather(*[self.ask(\"", "await asyncio.gather(*[self.ask('scanner', 'IMAGE', i, 'SCAN') for i in images]) and await asyncio.gather(*[self.ask(\""),
     "Send fewer requests to scanner"),
    (ch("labels.ravel()", "labels.ravel()[::-1]"), "The values are right, but in another order"),
    (ch("labels.ravel()", "labels.ravel().astype(np.int64)"), "DIGITS is INT64, expected INT32"),
    (ch("for image in images])", "for image in [images[0]] * 4])"), "element 1: got 0, expected 1"),
    (ch("CHECK:%bls page IMAGES=images[:4] -q", "%bls page IMAGES=images[:1] -q\n%bls scanner IMAGE=images[0] -n 4 --async -q"),
     "The notebook sent"),
    (ch("await asyncio.gather(*[self.ask(", "asyncio.gather(*[self.ask("), "1 request failed"),
)  # fmt: skip

EXERCISES = {
    "blank picture": Exercise(
        "00_quickstart", ("cell-01", "cell-06"), "cell-22", "cell-18",
        ch("if not image.as_numpy().any()", "if image.as_numpy().max() == 0", "np.array([digit], np.int32)",
           "np.full(1, digit, dtype='int32')"),
        BLANK,
    ),
    "expert": Exercise(
        "00_quickstart", ("cell-01", "cell-06"), "cell-22", "cell-20",
        ch('for model in ("digit_classifier", "digit_expert"):', "for model in ['digit_classifier'] + ['digit_expert']:",
           "confidence > 0.6", "not confidence <= 0.6"),
        (
            (ch("confidence > 0.6", "confidence <= 0.6"), "The condition is the wrong way round"),
            (ch("if confidence > 0.6:\n                break", "pass"), "Every request calls digit_expert"),
            (ch('("digit_classifier", "digit_expert")', '("digit_classifier",)'), "No request to digit_expert"),
            (ch("confidence > 0.6", "confidence > 0.7"), "Request 3 calls digit_expert 1 time, expected 0"),
            (ch("confidence > 0.6", "confidence > 0.5"), "Request 2 calls digit_expert 0 times, expected 1"),
            (ch("odds, label = self.ask", "odds, label = (odds, label) if model != 'digit_classifier' and "
                "self.ask(model, [batch], ['LABEL']) else self.ask"), "Response 2: got 9, expected 3"),
            (ch("np.array([digit], np.int32)", "np.array([digit])"), "DIGIT is INT64"),
            (ch("CHECK:%bls reader IMAGE=images[index] -q", "%bls reader IMAGE=images[0] -q"), "No request to digit_expert"),
        ),
    ),
    "gather the scans": Exercise(
        "01_sync_and_async", ("async-01", "async-03", "+repo.load('scanner', config={'instance_group': [{'count': 16}]})"),
        "async-23", "async-21",
        ch("await asyncio.gather(*[self.ask(\"scanner\", \"IMAGE\", image, \"SCAN\") for image in images])",
           "[await task for task in [asyncio.ensure_future(self.ask('scanner', 'IMAGE', i, 'SCAN')) for i in images]]"),
        OVERLAP,
    ),
    "a coroutine that blocks": Exercise(
        "01_sync_and_async", ("async-01",), "async-35", "async-33",
        ch("import asyncio", "import asyncio, time", "asyncio.sleep(0.05)", "asyncio.to_thread(time.sleep, 0.05)"),
        (
            (ch("await asyncio.sleep(0.05)", "__import__('time').sleep(0.05)"), "blocks"),
            (ch("await asyncio.sleep(0.05)", "pass"), "must still take its time"),
            (ch("await asyncio.sleep(0.05)", "asyncio.sleep(0.05)"), "must still take its time"),
            (ch('pb_utils.Tensor("SCAN", image)', 'pb_utils.Tensor("SCAN", image * 0)'), "got 0, expected 5"),
            (ch('pb_utils.Tensor("SCAN", image)', 'pb_utils.Tensor("SCAN", image.astype("float32"))'), "SCAN is FP32"),
            (ch("await asyncio.sleep(0.05)", "await time.sleep(0.05)"), "name 'time' is not defined"),
            (ch("await asyncio.sleep(0.05)", "await asyncio.sleep(0)"), "must still take its time"),
        ),
    ),
    "calls of a sync model": Exercise(
        "01_sync_and_async",
        ("async-01", "async-03", "+repo.load('scanner', config={'instance_group': [{'count': 16}]})"),
        "async-23:page:postcode", "a8b45820",
        ch("import asyncio\n", "import asyncio\nimport asyncio as aio\n", "await asyncio.gather", "await aio.gather"),
        tuple((tuple((a.replace(" page ", " postcode "), b.replace("%bls page ", "%bls postcode ")) for a, b in c), w)
              for c, w in OVERLAP),
    ),
    "one request": Exercise(
        "01_sync_and_async", ("async-01",), "async-43", "",
        ch("INPUT0=range(64)", "INPUT0=np.arange(64, dtype=np.float32)"),
        (
            (ch("range(64)", "[0]", "[4.0] * 64", "[4.0]"), "The response has 1 value, expected 64"),
            (ch("range(64)", "range(63)", "* 64", "* 63"), "The response has 63 values, expected 64"),
            (ch("%bls add_sub INPUT0=range(64) INPUT1=[4.0] * 64 -q",
                "for n in range(64):\n    %bls add_sub INPUT0=[n] INPUT1=[4.0] -q"), "has 1 value, expected 64"),
            (ch("[4.0] * 64", "[5.0] * 64"), "Every value is 1 too large"),
            (ch("INPUT0=range(64) INPUT1=[4.0] * 64", "INPUT0=[4.0] * 64 INPUT1=range(64)"), "OUTPUT1"),
            (ch("range(64)", "range(63, -1, -1)"), "The values are right, but in another order"),
            (ch("[4.0] * 64", "[4.0]"), "request failed"),
            (ch("%bls add_sub INPUT0=range(64) INPUT1=[4.0] * 64 -q", "pass"), "no such output"),
        ),
    ),
    "countdown": Exercise(
        "02_decoupled_streams", ("streams-01",), "streams-20", "streams-18",
        ch("for left in range(n.item(), -1, -1):", "for left in reversed(range(int(n[0]) + 1)):"),
        (
            (ch("np.array([left], np.int32)", "n"), "got 3, expected 2"),
            (ch("np.array([left], np.int32)", "np.array([3], np.int32)"), "Every response has the same value, 3"),
            (ch("range(n.item(), -1, -1)", "range(n.item(), 0, -1)"), "4 responses, expected 6"),
            (ch("range(n.item(), -1, -1)", "range(n.item() + 1)"), "in another order"),
            (ch("np.array([left], np.int32)", "np.array([left])"), "LEFT is INT64, expected INT32"),
            (ch("range(n.item(), -1, -1)", "[n.item()]"), "2 responses, expected 6"),
            (ch("range(n.item(), -1, -1)", "range(n.item(), 0)"), "Its outputs are none: a final flag alone"),
            (ch("range(n.item(), -1, -1)", "(3, 2, 1, 0)"), "8 responses, expected 6"),
            (ch("range(n.item(), -1, -1)", "[list(range(n.item(), -1, -1))]", "np.array([left]", "np.array(left"),
             "2 responses with all the values"),
            (ch("range(n.item(), -1, -1)", "range(n, -1)"), "only integer scalar arrays can be"),
        ),
    ),
    "cancel": Exercise(
        "02_decoupled_streams", ("streams-01", "streams-03", "streams-07", "streams-08", "+import time"), "streams-28", "",
        ch("two = [next(stream), next(stream)]", "two = [response for _, response in zip(range(2), stream)]"),
        (
            (ch("stream.cancel()\n", ""), "requests of digit_classifier: 6"),
            (ch("stream.cancel()", "next(stream)\nstream.cancel()"), "requests of digit_classifier: 3"),
            (ch("stream.cancel()\ntime.sleep(0.3)", "time.sleep(0.3)\nstream.cancel()"), "requests of digit_classifier: 6"),
            (ch("images[:6]", "images[:2]", "stream.cancel()", "pass", "[next(stream), next(stream)]", "[next(stream)]"),
             "expected [0, 1]"),
            (ch("images[:6]", "images[:2]", "stream.cancel()", "pass"), "No request was cancelled"),
            (ch("[next(stream), next(stream)]", "[next(stream)]"), "digits is [0], expected [0, 1]"),
            (ch("[next(stream), next(stream)]", "[]"), "digits is [], expected [0, 1]"),
            (ch("two = [next(stream), next(stream)]\nstream.cancel()", "two = list(stream)[:2]"), "digit_classifier: 6"),
            (ch("images[:6]", "images[:2]", "stream.cancel()", "other = read(images[:6]).exec(decoupled=True)\nother.cancel()"),
             "requests of strip_reader: 2"),
            (ch("stream.cancel()", "[*map(next, [read(images[:1]).exec(decoupled=True)])]"), "No request was cancelled"),
        ),
    ),
    "sum on the GPU": Exercise(
        "03_devices", ("devices-01", "devices-04"), "devices-22", "",
        ch("INPUT0=x INPUT1=x * 10", "INPUT0=x INPUT1=10 * x --device gpu:0"),
        (
            (ch("dlpack_add_sub", "add_sub"), "moved: 2"),
            (ch("%bls dlpack_add_sub INPUT0=x INPUT1=x * 10", "%bls add_sub INPUT0=x INPUT1=x * 10 --device gpu:0"),
             "An input is moved to the CPU unless the model sets"),
            (ch("INPUT1=x * 10", "INPUT1=x * 10 --device cpu"), "OUTPUT0 on cpu"),
            (ch("INPUT0=x INPUT1=x * 10", "INPUT0=x.get() INPUT1=x.get() * 10"), "OUTPUT0 on cpu"),
            (ch("INPUT0=x ", "INPUT0=x.get() "), "Alive at that moment: notebook/INPUT0"),
            (ch("INPUT1=x * 10", "INPUT1=(x * 10).get()"), "Alive at that moment: notebook/INPUT1"),
            (ch("%bls dlpack_add_sub INPUT0=x INPUT1=x * 10", "%bls identity_device INPUT=x"), "Its outputs are OUTPUT"),
            (ch("INPUT0=x INPUT1=x * 10", "INPUT0=x * 10 INPUT1=x"), "Every value has the wrong sign"),
            (ch("INPUT1=x * 10", "INPUT1=x"), "element 1: got 2, expected 11"),
            (ch("INPUT1=x * 10", "INPUT1=x * 10 --outputs OUTPUT0"), "no OUTPUT1. Its outputs are OUTPUT0"),
        ),
    ),
    "stay on the GPU": Exercise(
        "03_devices", ("devices-01", "devices-04", "devices-26"), "devices-31", "devices-29",
        ch('backend: "python"\n', "", "parameters { key:", "parameters { key: "),
        (
            (ch('string_value: "no"', 'string_value: "yes"'), 'FORCE_CPU_ONLY_INPUT_TENSORS to "no"'),
            (ch("FORCE_CPU_ONLY_INPUT_TENSORS", "FORCE_CPU_INPUT"), 'FORCE_CPU_ONLY_INPUT_TENSORS to "no"'),
            (ch("parameters {", "# parameters {"), 'FORCE_CPU_ONLY_INPUT_TENSORS to "no"'),
            (ch("parameters {", "# parameters {", "CHECK:%bls scale IN=x", "%bls scale IN=x --device gpu:0"), "moved of scale: 2"),
            (ch("CHECK:IN=x", "IN=x * 2 --device cpu"), "OUT on cpu"),
            (ch("CHECK:IN=x", "IN=x.get()"), "OUT on cpu"),
            (ch("parameters {", "instance_group { kind: KIND_CPU }\n#"), "moved of scale: 1"),
        ),
    ),
    "one response at a time": Exercise(
        "04_memory_lifetimes", ("memory-01", "memory-10"), "memory-15", "",
        ch("    response = ask()\n    del response", "    ask()"),
        (
            (ch("    del response", "    pass"), "Alive at that moment"),
            (ch("    del response", "del response"), "Alive at that moment"),
            (ch("    response = ask()\n    del response", "    responses = [ask() for _ in range(4)]"), "Send fewer requests"),
            (ch("for _ in range(4):", "for _ in range(2):"), "Send more requests to dlpack_add_sub"),
            (ch("for _ in range(4):\n    response = ask()\n    del response", "kept = [ask() for _ in range(4)]"),
             "held by kept"),
            (ch("    del response", "    import gc; gc.collect()"), "held by response"),
            (ch("for _ in range(4):\n", "view = None\nfor _ in range(4):\n", "    del response",
                "    view = response.output_tensors()[0]; del response"), "held by view"),
            (ch("for _ in range(4):\n    response = ask()\n    del response", "pass"), "No request to dlpack_add_sub"),
        ),
    ),
    "mend the leak": Exercise(
        "04_memory_lifetimes", ("memory-01",), "memory-22", "memory-20",
        ch("self.kept.append(float(clean.sum()))", "self.kept.append(clean.sum().item())", "clean[:8].get()", "clean[:8].tolist()"),
        (
            (ch("self.kept.append(float(clean.sum()))", "self.kept.append(response)"), "mended.kept"),
            (ch("clean[:8].get()", "clean[:8]"), "mended.previews"),
            (ch("clean[:8].get()", "clean[:8].copy()"), "160 B on gpu:0"),
            (ch("            raise", "            self.failed = signal\n            raise"), "held by mended.failed"),
            (ch("self.kept.append(float(clean.sum()))", "self.kept = [response]"), "mended.kept"),
            (ch("loudest = numpy.array([float(abs(clean).max())]", "loudest = numpy.array([float(clean.max())]"),
             "Every value is 0.5 too small"),
            (ch("clean[:8].get()", "numpy.asarray(clean[:8])"), "5 requests failed"),
            (ch("clean = cupy.from_dlpack(", "clean = cupy.zeros_like(cupy.from_dlpack(", '"OUTPUT1"))\n', '"OUTPUT1")))\n'),
             "Every value is 1.25 too small"),
            (ch("self.kept.append(float(clean.sum()))", "self.kept.append(clean.sum())"), "held by"),
            (ch("        return pb_utils.InferenceResponse([", "        self.kept.clear(), self.previews.clear()\n"
                "        return pb_utils.InferenceResponse(["), "Every response has the same value, 1"),
            (ch("        self.kept.append(float(clean.sum()))", "        self.kept = [float(clean.sum())]"), "got 1, expected 2"),
            (ch("self.previews.append(clean[:8].get())", "self.previews.append(None)"), "object of type 'NoneType' has no len()"),
            (ch("self.kept.append(float(clean.sum()))", "pass"), "Every response has the same value, 0"),
            (ch("CHECK:range(5)", "range(3)"), "3 responses, expected 5"),
        ),
    ),
    "read the wheels together": Exercise(
        "12_somebody_elses_pipeline", ("+import numpy as np\nfrom sklearn.datasets import load_digits\nimport bls_notebook as bls", "3291b8d5", "a8f07320", "30d61e13", "5e1c07aa", "4885d781", "94a93ae5"),
        "fcdd7ac9", "b6286a4e",
        wheel("async_exec()", "async_exec(decoupled=False)"),
        (
            (ch("seen.code.source", METER), "`exec` blocks until"),
            (meter(WHEELS, YESTERDAY), "for other inputs, READING"),
            (wheel("await asyncio.gather(*calls)", "[await call for call in calls]"), "Each `await` waits"),
            (wheel("for box in boxes:", "for box in boxes[:4]:"), "got 123, expected 1234"),
            (wheel("reading = np.array([int(", "reading = np.array([7 + int("), "got 1241, expected 1234"),
            (wheel("for box in boxes:", "for box in boxes[::-1]:"), "got 43210, expected 1234"),
            (wheel("boxes[np.argsort(boxes[:, 0])]", "boxes"), "with another find_wheels, READING"),
            (wheel("[: self.wheels]", "[:5]"), "Read the parameter `wheels` of the configuration"),
            (wheel("[: self.wheels]", ""), "with the parameter wheels = 3, READING"),
            (wheel("append(digit)", "append(digits[0] if digits else digit)"), "got 0, expected 1234"),
            (wheel(")], np.int32)", ")], np.int64)"), "expects 'INT32'"),
            (wheel("gather(*calls)", "gather(*calls[:3]) + await asyncio.gather(*calls[3:])"), "1 of these waits is not needed"),
            (wheel("(plausible,) = await self.call(\"plausible\"", "plausible = np.array([True])  #"), "No request to plausible"),
            (wheel("asyncio.gather(*calls)", "asyncio.gather(calls)"), "1 request failed"),
        ),
        (meter(WHEELS, THREADS), meter(WHEELS, ONE_REQUEST)),
    ),
    "blank picture on the server": Exercise(
        "14_to_production", ("production-01",), "production-29", "production-27",
        ch("if not image.as_numpy().any()", "if image.as_numpy().max() == 0"),
        (
            (ch("np.array([-1], np.int32)", "np.array([0], np.int32)"), "Response 1: got 0, expected -1"),
            (ch("np.array([-1], np.int32)", "np.array([-1])"), "DIGIT is INT64, expected INT32"),
            (ch("if not image.as_numpy().any()", "if True"), "Every response has the same value, -1"),
            (ch("if not image.as_numpy().any()", "if image.as_numpy() is None"), "1 request failed"),
            (ch(', pb_utils.Tensor("CONFIDENCE", confidence)', ""), "no CONFIDENCE. Its outputs are DIGIT"),
            (ch("np.ones(1, np.float32)", "np.ones(1)"), "CONFIDENCE is FP64, expected FP32"),
            (ch("CHECK:%bls reader IMAGE=images[0] -q", ""), "1 response, expected 2"),
        ),
    ),
}  # fmt: skip
