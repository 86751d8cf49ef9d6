"""The pipeline: detect the language of a document, for each sentence and as a whole.

    DOCUMENT -> sentences -> letters -> language, for all sentences at the same time -> LANGUAGE

The pipeline ignores sentences below the confidence that the parameter CONFIDENCE in config.pbtxt sets.
If it ignores all of them, the answer is "unknown".
"""

import asyncio
import json
import re

import numpy as np
import triton_python_backend_utils as pb_utils

LANGUAGES = ["English", "French", "German", "Spanish", "Swedish"]


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.confidence = float(parameters["CONFIDENCE"]["string_value"])

    async def execute(self, requests):
        return await asyncio.gather(*[self._detect(request) for request in requests])

    async def _detect(self, request):
        document = pb_utils.get_input_tensor_by_name(request, "DOCUMENT").as_numpy()[0].decode("utf-8")
        sentences = [part.strip() for part in re.split(r"[.!?\n]+", document) if part.strip()]
        said = await asyncio.gather(*[self._language_of(sentence) for sentence in sentences])
        sure = [language for language in said if language != "unknown"]
        whole = max(sure, key=sure.count, default="unknown")
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("LANGUAGE", np.array([whole.encode()], dtype=np.object_)),
                pb_utils.Tensor("SENTENCES", np.array([each.encode() for each in said], dtype=np.object_)),
            ]
        )

    async def _language_of(self, sentence):
        text = pb_utils.Tensor("TEXT", np.array([sentence.encode("utf-8")], dtype=np.object_))
        counts = await self._ask("letters", text, "COUNTS")
        probabilities = (await self._ask("language", counts, "PROBABILITIES")).as_numpy()[0]
        best = int(probabilities.argmax())
        return LANGUAGES[best] if probabilities[best] >= self.confidence else "unknown"

    async def _ask(self, model, tensor, output):
        request = pb_utils.InferenceRequest(model_name=model, requested_output_names=[output], inputs=[tensor])
        response = await request.async_exec()
        if response.has_error():
            raise pb_utils.TritonModelException(f"{model}: {response.error().message()}")
        return pb_utils.get_output_tensor_by_name(response, output)
