"""Attempts at the puzzles about requests, answers, memory and devices."""

# ruff: noqa: E501 - a table

from __future__ import annotations

from tests.course.exercises.exercise import ch
from tests.course.puzzles.attempts import NAIVE, Attempts

FEWER = "There should be fewer requests to "
ATTEMPTS = {
    "every_request": Attempts(
        "Each `await` waits for its response",
        ch(
            "return await asyncio.gather(*[self.answer(request) for request in requests])",
            "tasks = [asyncio.create_task(self.answer(request)) for request in requests]\n        return [await task for task in tasks]",
        ),
        (
            (
                ch("[self.answer(request) for request in requests]", "[self.answer(requests[0])]"),
                "do not match the number of InferenceRequest objects",
            ),
            (
                ch(
                    "return await asyncio.gather(*[",
                    "return [await task for task in asyncio.as_completed([",
                    " for request in requests])",
                    " for request in requests])]",
                ),
                "in the order of the requests",
            ),
            (ch("await request.async_exec()", "request.exec()"), "`exec` blocks until its response arrives"),
            (
                ch(
                    "[self.answer(request) for request in requests])",
                    "[self.answer(request) for request in requests[::-1]])",
                ),
                "in the order of the requests",
            ),
        ),
    ),
    "requested": Attempts(
        FEWER + "heat",
        ch(
            '        if "LABEL" in request.requested_output_names():\n            outputs.append(self.ask("classify", scan, "LABEL"))\n'
            '        if "HEAT" in request.requested_output_names():\n            outputs.append(self.ask("heat", scan, "HEAT"))\n',
            '        for name, model in (("LABEL", "classify"), ("HEAT", "heat")):\n            if name in request.requested_output_names():\n'
            "                outputs.append(self.ask(model, scan, name))\n",
        ),
        (
            (ch('if "HEAT" in request.requested_output_names():', "if True:"), FEWER + "heat"),
            (ch('if "LABEL" in request.requested_output_names():', "if True:"), FEWER + "classify"),
            (ch('if "HEAT" in request.requested_output_names():', "if False:"), "has no HEAT"),
            (ch('"LABEL" in', '"label" in'), "Send 1 request to `classify`.\n"),
            (
                ch('if "HEAT" in request.requested_output_names():', 'if "LABEL" in request.requested_output_names():'),
                "has no HEAT",
            ),
            (
                ch(
                    'if "LABEL" in request.requested_output_names():',
                    'if request.requested_output_names() == ["LABEL"]:',
                ),
                "has no LABEL",
            ),
        ),
    ),
    "once": Attempts(
        FEWER + "dictionary",
        ch(
            "        if self.known is None:\n            self.known = self.words()\n",
            "        self.known = self.known or self.words()\n",
        ),
        (
            (
                ch("self.known = None", "self.known = self.words()"),
                "BLS is only supported during the 'execute' function",
            ),
            (
                ch(
                    "            self.known = self.words()\n        number = self.known.index(word)",
                    "            number = self.words().index(word)",
                ),
                FEWER + "dictionary",
            ),
            (ch("if self.known is None:", "if not self.known or word not in self.known[:1]:"), FEWER + "dictionary"),
            (
                ch(
                    "self.known = self.words()\n        number",
                    'self.known = [b"apple", b"fig", b"pear"]\n        number',
                ),
                "failed",
            ),
            (ch("self.known.index(word)", "self.known.index(word) + 1"), "got"),
            (
                ch(
                    "            self.known = self.words()\n",
                    "            try:\n                self.known = self.words()\n            except Exception as error:\n"
                    "                self.known = error\n        if isinstance(self.known, Exception):\n            raise self.known\n",
                ),
                "`dictionary` answers again, so your model must, too",
            ),
        ),
    ),
    "batch_dim": Attempts(
        "expected FP32",
        ch("images.mean(axis=1, keepdims=True).astype(np.float32)", "images.mean(axis=1, dtype=np.float32)[:, None]"),
        (
            (
                ch("images.mean(axis=1, keepdims=True)", "images.mean().reshape(1, 1)"),
                "The first dimension is the batch",
            ),
            (ch(".astype(np.float32)", ""), "FP64, expected FP32"),
            (ch("axis=1", "axis=0"), "The first dimension is the batch"),
            (ch(", keepdims=True", ""), "The shape of BRIGHT should be"),
            (
                ch("images.mean(axis=1, keepdims=True)", "images[:1].mean(axis=1, keepdims=True)"),
                "one row for each picture",
            ),
            (
                ch(
                    "images.mean(axis=1, keepdims=True)",
                    "((images[:, :1] + images[:, 1:2] + images[:, 2:3] + images[:, 3:]) / 4)",
                ),
                "got",
            ),
        ),
    ),
    "in_place": Attempts(
        "two names or a slice share the memory",
        ch("shifted = data - data.min()", "shifted = data.copy()\n        shifted -= shifted.min()"),
        (
            (
                ch("shifted = data - data.min()", "shifted = data[:]\n        shifted -= shifted.min()"),
                "two names or a slice share the memory",
            ),
            (
                ch("shifted = data - data.min()", "data -= data.min()\n        shifted = data.copy()"),
                "two names or a slice share the memory",
            ),
            (ch("data - data.min()", "data - data.max()"), "too small"),
            (
                ch(
                    "shifted = data - data.min()",
                    "low = data.min()\n        shifted = data\n        shifted -= low",
                    ", mean]",
                    ", pb_utils.Tensor('MEAN', mean.as_numpy() + low)]",
                ),
                "callees are used",
            ),
            (
                ch(
                    "data - data.min()",
                    "data - data.min()\n        self.ask('mean_of', pb_utils.Tensor('DATA', data), 'MEAN')",
                ),
                FEWER + "mean_of",
            ),
        ),
    ),
    "leak": Attempts(
        "held by painter.pictures",
        ch(
            "self.total, self.count = 0.0, 0",
            "self.means = []",
            "self.total += float(picture.mean())",
            "self.means.append(float(picture.mean()))",
            "self.count += 1\n        mean = self.total / self.count",
            "mean = np.mean(self.means)",
        ),
        (
            (
                (*NAIVE, *ch("self.pictures.append(picture)", "self.pictures.append(picture[:1])")),
                "held by painter.pictures",
            ),
            (
                (*NAIVE, *ch("self.pictures.append(picture)", "self.pictures.append(picture.reshape(512, 512))")),
                "held by painter.pictures",
            ),
            (ch("mean = self", "self.last = picture\n        mean = self"), "held by painter.last"),
            (
                ch("raise", "self.failed = request\n            raise"),
                "while a callee fails: 4 B on cpu in 1 block, held by painter.failed",
            ),
            (
                ch(
                    "raise",
                    "self.failed = [*getattr(self, 'failed', []), b'x' * 4096 + str(request).encode()]\n            raise",
                ),
                "more after each request",
            ),
            (ch("mean = self.total / self.count", "mean = picture.mean()"), "got"),
            (ch("self.count += 1", "self.count += self.count < 3"), "the difference comes from earlier requests"),
            (ch("self.count += 1", "self.count = 1"), "got"),
            (ch("picture.mean()", "picture[0]"), "got"),
            (
                (*NAIVE, *ch("append(picture)", "append(picture.copy())")),
                "3.0 MiB in 3 copies, held by painter.pictures",
            ),
            (
                (
                    *NAIVE,
                    *ch(
                        "append(picture)",
                        "append(picture.tobytes())",
                        "each.mean()",
                        "np.frombuffer(each, np.float32).mean()",
                    ),
                ),
                "in 3 copies, held by painter.pictures",
            ),
            (
                ch(
                    "self.total, self.count = 0.0, 0",
                    "self.all = np.zeros(0, np.float32)",
                    "self.total += float(picture.mean())",
                    "self.all = np.append(self.all, picture)",
                    "self.count += 1\n        mean = self.total / self.count",
                    "mean = np.mean(self.all)",
                ),
                "3 MiB added to a copy, held by painter.all",
            ),
        ),
        (
            ch(
                "self.total += float(picture.mean())",
                "self.total = self.total + picture",
                "self.total / self.count",
                "np.mean(self.total / self.count)",
            ),
        ),
    ),
    "stay": Attempts(
        "is moved to --device (preferred_memory)",
        ch(
            "inputs=[tensor])",
            "inputs=[tensor],\n            **({'preferred_memory': pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0)} if output == 'CLEAN' else {}))",
        ),
        (
            (
                ch(
                    "inputs=[tensor])",
                    "inputs=[tensor],\n            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0))",
                ),
                "preferred_memory",
            ),
            (
                ch(
                    'clean = self.ask("clean", pb_utils.get_input_tensor_by_name(request, "SIGNAL"), "CLEAN")',
                    'clean = self.ask("clean", pb_utils.get_input_tensor_by_name(request, "SIGNAL"), "CLEAN")\n'
                    '        clean = pb_utils.Tensor("CLEAN", clean.as_numpy())',
                ),
                "failed",
            ),
            (
                ch(
                    "return pb_utils.InferenceResponse([self.ask",
                    "import cupy\n        clean = pb_utils.Tensor('CLEAN', cupy.asnumpy(cupy.from_dlpack(clean)))\n"
                    "        return pb_utils.InferenceResponse([self.ask",
                ),
                "pipe/CLEAN 1 MiB",
            ),
            (ch('[self.ask("loudest", clean, "PEAK")]', "[clean]"), "has no PEAK"),
        ),
    ),
    "blocking": Attempts(
        "`exec` blocks until its response arrives",
        ch(
            "await asked.async_exec()",
            "await asyncio.to_thread(asked.exec)",
            "import triton",
            "import asyncio\n\nimport triton",
        ),
        (
            (
                ch(
                    "response = await asked.async_exec()",
                    "await asyncio.sleep(0)\n            response = asked.exec()",
                    "import triton",
                    "import asyncio\n\nimport triton",
                ),
                "`exec` blocks until its response arrives",
            ),
            (
                ch(
                    "await asked.async_exec()",
                    "await asyncio.create_task(asked.async_exec())",
                    "import triton",
                    "import asyncio\n\nimport triton",
                ),
                "async_exec returns a future, which is sent already",
            ),
            (ch("await asked.async_exec()", "asked.async_exec()"), "await it: `response = await request.async_exec()`"),
            (
                ch(
                    "            request.get",
                    "            sender = request.get_response_sender()\n            sender.send(pb_utils.InferenceResponse([text]))\n            request.get",
                ),
                "The model sent 2 responses; expected 1",
            ),
            (
                ch(
                    "await asked.async_exec()",
                    "asyncio.run(asked.async_exec())",
                    "import triton",
                    "import asyncio\n\nimport triton",
                ),
                "failed",
            ),
            (
                ch("async def", "def", "await asked.async_exec()", "asked.exec()"),
                "`exec` blocks until its response arrives",
            ),
        ),
    ),
    "early": Attempts(
        "send each response as soon as it is known",
        ch(
            "for page in pages:",
            "for number, page in enumerate(pages):",
            "sender.send(pb_utils.InferenceResponse([text]))\n            sender.send(flags=FINAL)",
            "is_last = number == len(pages) - 1\n                sender.send(pb_utils.InferenceResponse([text]), flags=FINAL if is_last else 0)",
        ),
        (
            (
                ch(
                    "                sender.send(pb_utils.InferenceResponse([text]))\n",
                    "                sender.send(pb_utils.InferenceResponse([text]))\n                break\n",
                ),
                "expected",
            ),
            (ch("for page in pages:", "for page in pages[::-1]:"), "in another order"),
            (
                ch(
                    "for page in pages:",
                    "texts = []\n            for page in pages:",
                    "                sender.send(pb_utils.InferenceResponse([text]))\n",
                    "                texts.append(text)\n                if len(texts) > 1:\n                    sender.send(pb_utils.InferenceResponse([texts[-2]]))\n            sender.send(pb_utils.InferenceResponse([texts[-1]]))\n",
                ),
                "The first response came after 2 calls",
            ),
            (
                ch(
                    "sender.send(pb_utils.InferenceResponse([text]))",
                    "sender.send(pb_utils.InferenceResponse([text]), flags=FINAL)",
                ),
                "nothing can be sent after the final flag",
            ),
            (
                ch(
                    "for page in pages:",
                    "sender.send(pb_utils.InferenceResponse([pb_utils.Tensor('TEXT', pages[0, :1].astype('int32'))]))\n            for page in pages:",
                ),
                "The model sent 2 responses; expected 1",
            ),
            (
                ch("for page in pages:", "sender.send(pb_utils.InferenceResponse([]))\n            for page in pages:"),
                "The model sent 2 responses; expected 1",
            ),
            (
                ch(
                    "for page in pages:",
                    "first = (pages[0, :1] * 100 + pages[0, 1:]).astype('int32')\n            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor('TEXT', first)]))\n            for page in pages[1:]:",
                ),
                "Send 4 requests to `read`: your model must not do the work of a callee itself",
            ),
        ),
    ),
    "final_flag": Attempts(
        "sent exactly once",
        ch(
            "for number in range(count):",
            "if not count:\n                sender.send(flags=FINAL)\n            for number in range(count):",
            "sender.send(pb_utils.InferenceResponse([tick]))\n            sender.send(flags=FINAL)",
            "sender.send(pb_utils.InferenceResponse([tick]), flags=FINAL if number == count - 1 else 0)",
        ),
        (
            (ch("            sender.send(flags=FINAL)\n", ""), "sent exactly once"),
            (ch("InferenceResponse([tick]))", "InferenceResponse([tick]), flags=FINAL)"), "sent exactly once"),
            (
                ch(
                    "            sender.send(flags=FINAL)\n",
                    "            if count == 0:\n                sender.send(flags=FINAL)\n",
                ),
                "sent exactly once",
            ),
            (ch("range(count)", "range(count - 1)"), "no response, only the end of the stream; expected 1"),
            (ch("range(count)", "range(count or 1)"), "The model sent 1 response; expected none"),
            (
                ch("sender.send(flags=FINAL)", "sender.send(flags=FINAL)\n            sender.send(flags=FINAL)"),
                "exactly once",
            ),
        ),
    ),
    "race": Attempts(
        "Every response was awaited",
        ch(
            "done, _ = await",
            "done, pending = await",
            "return pb_utils.InferenceResponse([done.pop().result()])",
            "[task.cancel() for task in pending]\n"
            "        return pb_utils.InferenceResponse([next(iter(done)).result()])",
        ),
        (
            (
                ch(
                    "return_when=asyncio.FIRST_COMPLETED)",
                    "return_when=asyncio.FIRST_COMPLETED)\n        await asyncio.wait(tasks)",
                ),
                "Every response was awaited",
            ),
            (ch("done.pop().result()", "tasks[0].result()"), "failed"),
            (
                ch("return_when=asyncio.FIRST_COMPLETED", "return_when=asyncio.ALL_COMPLETED"),
                "Every response was awaited",
            ),
            (ch('("north", "south")', '("north",)'), "Every response was awaited"),
            (
                ch(
                    'tasks = [asyncio.ensure_future(self.ask(mirror, city, "DEGREES")) for mirror in ("north", "south")]\n'
                    "        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)\n"
                    "        return pb_utils.InferenceResponse([done.pop().result()])",
                    'try:\n            answer = await asyncio.wait_for(self.ask("north", city, "DEGREES"), 0.005)\n'
                    '        except asyncio.TimeoutError:\n            answer = await self.ask("south", city, "DEGREES")\n'
                    "        return pb_utils.InferenceResponse([answer])",
                ),
                "1 of these waits is not needed",
            ),
            (
                ch(
                    "done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)",
                    "await asyncio.wait([fast := tasks[city.as_numpy()[0] % 2]])",
                    "done.pop()",
                    "fast",
                ),
                "no response while north gives none",
            ),
        ),
    ),
    "deadline": Attempts(
        "The answer to a question that takes too long is -1",
        ch("timeout=500_000", "timeout=400_000", "await call.async_exec()", "call.exec()"),
        (
            (ch("timeout=500_000", "timeout=5_000_000"), "The answer to a question that takes too long is -1"),
            (ch("timeout=500_000", "timeout=0"), "The answer to a question that takes too long is -1"),
            (ch("[-1]", "[0]"), "got 0, expected -1"),
            (ch("if response.has_error()", "if not response.has_error()"), "got -1, expected 40"),
            (ch("timeout=500_000", "timeout=800_000"), "The answer to a question that takes too long is -1"),
            (ch("timeout=500_000", "timeout=int(question.as_numpy()[0] == 3)"), "got 44, expected -1"),
            (
                ch(
                    "await call.async_exec()",
                    "None",
                    ", timeout=500_000",
                    "",
                    "if response.has_error():\n",
                    "try:\n            response = await asyncio.wait_for(call.async_exec(), 0.5)\n"
                    "        except asyncio.TimeoutError:\n",
                ),
                "The callee ran to its end all the same",
            ),
        ),
    ),
    "cycle": Attempts(
        "clerk -> archive -> clerk",
        ch("stamp = letter + 100", "stamp = letter.copy()\n        stamp += 100"),
        (
            (
                (
                    *NAIVE,
                    *ch(
                        "response = request.exec()",
                        "response = await request.async_exec()",
                        "def execute",
                        "async def execute",
                        "[self.answer",
                        "[await self.answer",
                        "def answer",
                        "async def answer",
                    ),
                ),
                "clerk -> archive -> clerk",
            ),
            (ch("letter + 100", "letter * 0 + 1"), "got 1001, expected 1101"),
            (ch("letter + 100", "letter * 0"), "Send what `archive` would ask for"),
            (ch("letter + 100", "100 - letter"), "expected"),
        ),
    ),
    "sequences": Attempts(
        "by its correlation ID",
        ch("            del self.sums[key]", "            self.sums.pop(key)"),
        (
            (
                ch(
                    "return pb_utils.get_output_tensor_by_name(response, output)",
                    "return pb_utils.get_output_tensor_by_name(response, output)",
                    "raise pb_utils.TritonModelException(response.error().message())",
                    "return pb_utils.Tensor(output, np.zeros(1, np.int32))",
                ),
                "while square fails",
            ),
            (ch("key = request.correlation_id()", "key = 0"), "by its correlation ID"),
            (
                ch(
                    "self.sums[key] = 0",
                    "self.sums.setdefault(key, 0)",
                    "            del self.sums[key]\n",
                    "            pass\n",
                ),
                "the flag START begins at zero",
            ),
            (ch("self.sums[key] = 0", "self.sums.clear()\n            self.sums[key] = 0"), "failed"),
            (ch("self.sums[key] +=", "self.sums[key] ="), "by its correlation ID"),
            (
                ch(
                    "        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:\n            self.sums[key] = 0\n        self.sums[key] +=",
                    "        self.sums[key] = self.sums.get(key, 0) +",
                ),
                "also if the sequence before it has no END",
            ),
            (
                ch(
                    "if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
                    "if request.flags() == pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
                ),
                "Flags are bits",
            ),
            (
                ch(
                    "if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
                    "if not request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
                ),
                "failed",
            ),
        ),
        (
            ch(
                "        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:\n            self.sums[key] = 0\n        self.sums[key] += int(",
                "        before = 0 if request.flags() & 1 else self.sums[key]  # fails after a failed START\n        self.sums[key] = before + int(",
            ),
        ),
    ),
}
