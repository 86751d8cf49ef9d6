"""Models with known dependences that try to mislead the analysis."""

from __future__ import annotations

from tests.profiling.overlap_graphs import Graph

TRAPS = (
    Graph(
        "gather",
        """\
    async def one(self, x):
        r, s = await asyncio.gather(ask("a", x).async_exec(), ask("b", x).async_exec())
        return ok(out(r)+out(s))
""",
        "a+b",
        is_async=True,
    ),
    Graph(
        "gather then dependent",
        """\
    async def one(self, x):
        r, s = await asyncio.gather(ask("a", x).async_exec(), ask("b", x).async_exec())
        t = await ask("c", out(r)+out(s)).async_exec()
        return ok(out(t))
""",
        "a+b, c",
        is_async=True,
    ),
    Graph(
        "sequential await",
        """\
    async def one(self, x):
        r = await ask("a", x).async_exec()
        s = await ask("b", x).async_exec()
        return ok(out(r)+out(s))
""",
        "a+b",
        is_async=True,
    ),
    Graph(
        "string routing",
        """\
    def one(self, x):
        l = out(ask("lang", x).exec())[0]
        if l == b"en":
            return ok(out(ask("a", x).exec()))
        return ok(out(ask("b", x).exec()))
""",
        "lang, a",
    ),
    Graph(
        "string unused",
        """\
    def one(self, x):
        l = out(ask("lang", x).exec())[0]
        y = out(ask("a", x).exec())
        return ok(y if l == b"en" else -y)
""",
        "lang+a",
    ),
    Graph(
        "json routing",
        """\
    def one(self, x):
        j = json.loads(out(ask("js", x).exec())[0])
        if j["route"] == "a":
            return ok(out(ask("a", x).exec()))
        return ok(out(ask("b", x).exec()))
""",
        "js, a",
    ),
    Graph(
        "json data",
        """\
    def one(self, x):
        j = json.loads(out(ask("js", x).exec())[0])
        return ok(out(ask("a", x * j["scale"]).exec()))
""",
        "js, a",
    ),
    Graph(
        "int routing",
        """\
    def one(self, x):
        k = int(out(ask("cls", x).exec())[0])
        return ok(out(ask(["a","b","c"][k], x).exec()))
""",
        "cls, b",
    ),
    Graph(
        "index into table",
        """\
    def one(self, x):
        k = int(out(ask("cls", x).exec())[0])
        table = np.arange(10).astype(np.float32)
        return ok(out(ask("a", x + table[k]).exec()))
""",
        "cls, a",
    ),
    Graph(
        "threshold negative",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        if a.min() > -100:
            a = a + out(ask("b", x).exec())
        return ok(a)
""",
        "a, b",
    ),
    Graph(
        "caught",
        """\
    def one(self, x):
        try:
            a = out(ask("a", x).exec())
            if a.max() > 1e3 or a.min() < 0: raise ValueError("odd")
            return ok(out(ask("b", x).exec()) + a)
        except Exception as e:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(e)))
""",
        "a+b",
    ),
    Graph(
        "finally",
        """\
    def one(self, x):
        try:
            a = out(ask("a", x).exec())
        finally:
            b = out(ask("b", x).exec())
        return ok(a + b)
""",
        "a+b",
    ),
    Graph(
        "fallback on error",
        """\
    def one(self, x):
        r = ask("fails", x).exec()
        if r.has_error():
            r = ask("a", x).exec()
        return ok(out(r) + out(ask("b", x).exec()))
""",
        "fails+b, a",
    ),
    Graph(
        "retry",
        """\
    def one(self, x):
        for i in range(3):
            r = ask("fails", x).exec()
            if not r.has_error(): return ok(out(r))
        return ok(out(ask("a", x).exec()))
""",
        "fails, fails, fails, a",
    ),
    Graph(
        "decoupled",
        """\
    def one(self, x):
        t = 0
        for r in ask("dec", x).exec(decoupled=True):
            if len(r.output_tensors()): t = t + out(r)
        return ok(t + out(ask("a", x).exec()))
""",
        "dec+a",
    ),
    Graph(
        "decoupled count",
        """\
    def one(self, x):
        n = 0
        for r in ask("dec", x).exec(decoupled=True):
            if len(r.output_tensors()): n += 1
        return ok(out(ask("a", x + n).exec()))
""",
        "dec, a",
    ),
    Graph(
        "decoupled each",
        """\
    def one(self, x):
        t = 0
        for r in ask("dec", x).exec(decoupled=True):
            if len(r.output_tensors()): t = t + out(ask("a", out(r)).exec())
        return ok(t)
""",
        "dec, a+a+a",
    ),
    Graph(
        "nested",
        """\
    def one(self, x):
        return ok(out(ask("nest", x).exec()) + out(ask("nest", x+1).exec()))
""",
        "nest+nest",
    ),
    Graph(
        "stateful mem",
        """\
    def one(self, x):
        self.put(x)
        return ok(out(ask("mem", np.array([-1.0])).exec()))
    def put(self, x):
        r = ask("mem", x).exec()
        if r.has_error():
            raise RuntimeError("no")
""",
        "mem, mem",
    ),
    Graph(
        "shared global",
        """\
    def one(self, x):
        return ok(out(ask("writes", x).exec()) + out(ask("reads", x).exec()))
""",
        "writes, reads",
    ),
    Graph(
        "model writes a file that the callee reads",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        np.save(PLACE + "/x.npy", a)
        return ok(out(ask("file", x).exec()))
""",
        "a, file",
    ),
    Graph(
        "threads",
        """\
    def one(self, x):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            call = lambda m: out(ask(m, x).exec())
            f = [pool.submit(contextvars.copy_context().run, call, m) for m in ("a", "b")]
            r = [g.result() for g in f]
        return ok(r[0] + r[1])
""",
        "a+b",
    ),
    Graph(
        "threads bare",
        """\
    def one(self, x):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            r = list(pool.map(lambda m: out(ask(m, x).exec()), ("a","b")))
        return ok(r[0] + r[1])
""",
        "a+b",
    ),
    Graph(
        "random model",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        return ok(out(ask("b", x + np.random.rand()).exec()) + a)
""",
        "?",
    ),
    Graph(
        "random output",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        return ok(out(ask("b", x).exec()) + a + np.random.rand())
""",
        "a+b",
    ),
    Graph(
        "counter in self",
        """\
    def initialize(self, args):
        self.n = 0
    def one(self, x):
        self.n += 1
        a = out(ask("a", x + self.n).exec())
        return ok(out(ask("b", x + self.n).exec()) + a)
""",
        "a+b",
    ),
    Graph(
        "state from former answer",
        """\
    def initialize(self, args):
        self.last = 0
    def one(self, x):
        a = out(ask("a", x + self.last).exec())
        b = out(ask("b", x).exec())
        self.last = a
        return ok(a + b)
""",
        "a+b",
    ),
    Graph(
        "file state",
        """\
    def one(self, x):
        p = PLACE + "/st.npy"
        old = np.load(p) if os.path.exists(p) else 0
        a = out(ask("a", x).exec())
        b = out(ask("b", x + old).exec())
        np.save(p, a)
        return ok(b)
""",
        "?",
    ),
    Graph(
        "ctypes",
        """\
    def one(self, x):
        a = np.ascontiguousarray(out(ask("a", x).exec()))
        y = np.empty_like(a)
        ctypes.memmove(y.ctypes.data, a.ctypes.data, a.nbytes)
        return ok(out(ask("b", y).exec()))
""",
        "a, b",
    ),
    Graph(
        "votes",
        """\
    def one(self, x):
        k = out(ask("cls", x).exec())[0]
        l = out(ask("cls2", x).exec())[0]
        if k == l:
            return ok(out(ask("a", x).exec()))
        return ok(x)
""",
        "cls+cls2, a",
    ),
    Graph(
        "argmax",
        """\
    def one(self, x):
        k = int(out(ask("a", x).exec()).argmax())
        return ok(out(ask("b", x[k:]).exec()))
""",
        "a, b",
    ),
    Graph(
        "difference",
        """\
    def one(self, x):
        d = out(ask("a", x).exec()) - out(ask("a", x).exec())
        return ok(out(ask("b", x + d).exec()))
""",
        "a+a, b",
    ),
    Graph(
        "time",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        b = out(ask("b", x + time.time() % 1000).exec())
        return ok(a + b)
""",
        "?",
    ),
    Graph(
        "one call",
        """\
    def one(self, x):
        return ok(out(ask("a", x).exec()))
""",
        "a",
    ),
    Graph(
        "unused result",
        """\
    def one(self, x):
        ask("a", x).exec()
        return ok(out(ask("b", x).exec()))
""",
        "a+b",
    ),
    Graph(
        "shape guard",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        assert a.shape == (3,)
        assert np.isfinite(a).all() and (a >= 0).all() and (a <= 100).all()
        b = out(ask("b", a).exec())
        return ok(b)
""",
        "a, b",
    ),
    Graph(
        "strict guard",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        if not np.array_equal(a, x * 2 + 1): raise ValueError("no")
        b = out(ask("b", x).exec())
        return ok(b)
""",
        "a, b",
    ),
    Graph(
        "loop with state",
        """\
    def one(self, x):
        best = 0.0
        for i in range(4):
            best = max(best, float(out(ask("a", x + i).exec()).max()))
            if best > 1e9: break
        return ok([best])
""",
        "a+a+a+a",
    ),
    Graph(
        "missing then same",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        if a.sum() > 0:
            a = a + out(ask("c", x).exec())
        return ok(a + out(ask("c", x + 1).exec()))
""",
        "a+c, c",
    ),
    Graph(
        "parameters",
        """\
    def one(self, x):
        a = out(ask("a", x).exec())
        request = pb_utils.InferenceRequest(
            model_name="b", requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", x)],
            parameters={"k": str(a[0])})
        return ok(out(request.exec()))
""",
        "a, b",
    ),
)
