"""Tests of the pipeline, with stubs for its callees and as a whole."""

from threading import Barrier

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

DOCUMENTS = [
    "The weather is fine today. We walk along the river and watch the boats on the water.",
    "Das Wetter ist heute schön. Wir gehen am Fluss entlang und sehen den Booten zu.",
    "Il fait très beau aujourd'hui. Nous marchons le long de la rivière et nous regardons les bateaux.",
    "El sol brilla sobre la ciudad. Los niños juegan en la calle.",
    "Solen skiner över staden. Barnen leker på gatan i dag.",
]


def document(text):
    return {"DOCUMENT": np.array([text.encode()], dtype=np.object_)}


def probabilities(*five):
    return {"PROBABILITIES": np.array([five], dtype=np.float32)}


def test_five_languages(triton_repository):
    answers = [triton_repository.infer("detect", document(text)) for text in DOCUMENTS]
    triton_repository.assert_same_answers("snapshots/documents.json", *answers)


def test_sentences_are_judged_at_the_same_time(triton_repository):
    together = Barrier(3, timeout=60)

    def counts(request):
        together.wait()  # until all three have arrived; sent one after the other, none would get an answer
        return {"COUNTS": np.ones((1, 36), np.float32)}

    with triton_repository.stub("letters", counts):
        triton_repository.infer("detect", document("One. Two. Three."))
    triton_repository.assert_overlapped(3, "letters")
    triton_repository.assert_called("language", 3, caller="detect")


def test_unsure_says_nothing(triton_repository):
    said = {5: probabilities(0.4, 0.6, 0, 0, 0), 6: probabilities(0, 0.1, 0.9, 0, 0)}

    def judge(request):  # by the number of letters: the sentences may arrive in any order
        counts = pb_utils.get_input_tensor_by_name(request, "COUNTS").as_numpy()
        return said[int(counts.sum())]

    with triton_repository.stub("language", judge):
        answer = triton_repository.infer("detect", document("First. Second."))
    triton_repository.assert_answer(answer, {"LANGUAGE": ["German"], "SENTENCES": ["unknown", "German"]})


@pytest.mark.parametrize("text", ["", " \n. ! ?"])
def test_a_document_without_sentences_asks_nobody(triton_repository, text):
    answer = triton_repository.infer("detect", document(text))
    triton_repository.assert_answer(answer, {"LANGUAGE": ["unknown"]})
    triton_repository.assert_not_called("letters")


def test_the_error_of_a_callee_names_it(triton_repository):
    with triton_repository.stub("language", "out of memory"):
        answer = triton_repository.infer("detect", document("A sentence."))
    assert "language: out of memory" in answer.error.message()


def test_nothing_is_kept(triton_repository):
    triton_repository.infer("detect", document(DOCUMENTS[0]))
    with triton_repository.assert_nothing_left():
        for text in DOCUMENTS:
            triton_repository.infer("detect", document(text))
