"""Templates are found where they stand, filled by what belongs there, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.engine.errors import ConfigError
from bls_notebook.repository.config import ModelConfigMessage, parse_pbtxt, to_pbtxt
from bls_notebook.repository.config.templates import Filled, Template, fill_templates, scan
from tests.repository.models import saying, write

from .strategies import any_config

LLM = """\
backend: "${triton_backend}"
max_batch_size: ${triton_max_batch_size}
model_transaction_policy { decoupled: ${decoupled_mode} }
dynamic_batching {
  preferred_batch_size: [ ${triton_max_batch_size} ]
  max_queue_delay_microseconds: ${max_queue_delay_microseconds}
  default_queue_policy: { max_queue_size: ${max_queue_size} }
}
input [ { name: "ids" data_type: TYPE_INT32 dims: [ ${width} ] } ]
output [
  { name: "logits" data_type: ${logits_datatype} dims: [ -1, -1 ] }
]
instance_group [ { count: ${n}, kind: ${kind} } ]
# string_value: "${gone}"
parameters: { key: "tokenizer_dir" value: { string_value: "${tokenizer_dir}" } }
parameters { key: "env" value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }
"""


def find_templates(text: str) -> list[Template]:
    return [template for template in scan(text) if not template.whole]


def test_every_template_says_where_it_stands() -> None:
    found = {template.key: (template.place, template.line) for template in find_templates(LLM)}
    assert found == {
        "triton_backend": ("backend", 1),
        "triton_max_batch_size": ("dynamic_batching.preferred_batch_size", 5),  # the later of two
        "decoupled_mode": ("model_transaction_policy.decoupled", 3),
        "max_queue_delay_microseconds": ("dynamic_batching.max_queue_delay_microseconds", 6),
        "max_queue_size": ("dynamic_batching.default_queue_policy.max_queue_size", 7),
        "width": ("input.dims", 9),
        "logits_datatype": ("output.data_type", 11),
        "n": ("instance_group.count", 13),
        "kind": ("instance_group.kind", 13),
        "tokenizer_dir": ('parameters["tokenizer_dir"]', 15),
    }


def test_defaults_by_where_a_template_stands() -> None:
    filled = fill_templates(LLM, {"tokenizer_dir": '/a "b"'}, defaults=True)
    config = parse_pbtxt(filled.text, model="m")
    assert (config.max_batch_size, list(config.dynamic_batching.preferred_batch_size)) == (8, [8])
    assert (config.backend, config.instance_group[0].count, list(config.input[0].dims)) == ("tensorrtllm", 1, [-1])
    assert not config.model_transaction_policy.decoupled
    assert config.parameters["tokenizer_dir"].string_value == '/a "b"'
    assert config.parameters["env"].string_value == "$$TRITON_MODEL_DIRECTORY/env.tar.gz"
    assert {fill.origin for fill in filled.fills} == {"given", "default"}
    sizes = next(fill for fill in filled.fills if fill.key == "triton_max_batch_size")
    assert sizes.places == ("max_batch_size", "dynamic_batching.preferred_batch_size")
    assert not filled.open
    filled = fill_templates("instance_group { kind: KIND_${kind} }", defaults=True)
    assert filled.text == "instance_group { kind: KIND_AUTO }"
    filled = fill_templates(LLM, defaults=True)  # text without a value stays as it is
    assert ([template.key for template in filled.open], filled.unread) == (["tokenizer_dir"], ())
    assert parse_pbtxt(filled.text, model="m").parameters["tokenizer_dir"].string_value == "${tokenizer_dir}"


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("max_batch_size: ${b}", {"b": 4}, "max_batch_size: 4"),
        ("max_batch_size: ${ b }", {"b": "4"}, "max_batch_size: 4"),
        ("max_batch_size: ${b:-2}", {}, "max_batch_size: 2"),
        ("max_batch_size: {{ b }}", {"b": 2}, "max_batch_size: 2"),
        ("max_batch_size: $B", {"B": 2}, "max_batch_size: 2"),
        ("max_batch_size: MAX_BATCH", {"MAX_BATCH": 2}, "max_batch_size: 2"),
        ("input { dims: ${d} }", {"d": "3, 224"}, "input { dims: [ 3, 224 ] }"),
        ("input { dims: [ ${d} ] }", {"d": "[3,224]"}, "input { dims: [ 3, 224 ] }"),
        ("input { data_type: ${t} }", {"t": "fp16"}, "input { data_type: TYPE_FP16 }"),
        ("input { data_type: TYPE_${t} }", {"t": "FP16"}, "input { data_type: TYPE_FP16 }"),
        ("input { data_type: TYPE_#T dims: 1 } # a comment", {"T": "FP16"},
         "input { data_type: TYPE_FP16 dims: 1 } # a comment"),
        ("input { data_type: TYPE_${t} }", {"t": "TYPE_FP16"}, "input { data_type: TYPE_FP16 }"),
        ("optimization { eager_batching: ${d} }", {"d": True}, "optimization { eager_batching: true }"),
        ('name: "${a}_${b}"', {"a": "x"}, 'name: "x_${b}"'),
        ("name: ${a}", {"a": "x"}, 'name: "x"'),
        ('name: "$HOME/$X"', {"X": "y"}, 'name: "$HOME/y"'),
        ('name: "$${a} {{ a }}" # ${a}', {"a": "x"}, 'name: "$${a} x" # ${a}'),
        ("backend: \"{{ a | default('{}') }} {{ HOME }}\"", {}, 'backend: "{} {{ HOME }}"'),
        ("max_batch_size: #B # a comment", {"B": 2}, "max_batch_size: 2 # a comment"),
        ("max_batch_size: # COMMENT\n 2", {"COMMENT": 3}, "max_batch_size: # COMMENT\n 2"),
        *((f"max_batch_size: {t}", {"B": 2}, "max_batch_size: 2") for t in ("<B>", "@B@", "%B%", "{B}")),
        ("input { dims: [-1, #size] # [-1, size]\n}", {"size": 4}, "input { dims: [-1, 4] # [-1, size]\n}"),
        ("input { dims: [#n, -1] }", {"n": 2}, "input { dims: [2, -1] }"),
        ("input { dims: [ 3, #channels, rows\n 2 ] }", {"channels": 4}, "input { dims: [ 3, #channels, rows\n 2 ] }"),
        ("max_batch_size: {{ b | default(8) }}", {}, "max_batch_size: 8"),
        ('name: "#NAME"', {"NAME": "x"}, 'name: "x"'),
    ],
)  # fmt: skip
def test_filling(text: str, values: dict[str, object], expected: str) -> None:
    assert fill_templates(text, values).text == expected


PARAMETERS = """\
parameters { key: "lexicon" value: { string_value: "/mnt/theirs/lexicon.txt" } }
parameters [ { key: "dir", value: { string_value: "${root}/x/${name}" } } ]
"""


@pytest.mark.parametrize(
    ("values", "lexicon", "folder"),
    [
        ({"lexicon": "mine.txt"}, "mine.txt", "${root}/x/${name}"),
        ({"m.lexicon": "mine.txt", "lexicon": "not this"}, "mine.txt", "${root}/x/${name}"),
        ({"n.lexicon": "mine.txt"}, "/mnt/theirs/lexicon.txt", "${root}/x/${name}"),
        ({"dir": "/d"}, "/mnt/theirs/lexicon.txt", "/d"),
        ({"dir": "/d", "root": "/r", "name": "n"}, "/mnt/theirs/lexicon.txt", "/r/x/n"),
        ({"m.root": "/r"}, "/mnt/theirs/lexicon.txt", "/r/x/${name}"),
    ],
)
def test_a_parameter_is_filled_by_its_key(values: dict[str, str], lexicon: str, folder: str) -> None:
    config = parse_pbtxt(fill_templates(PARAMETERS, values, model="m").text, model="m")
    assert config.parameters["lexicon"].string_value == lexicon
    assert config.parameters["dir"].string_value == folder
    assert not any(template.key in ("lexicon", "dir") for template in find_templates(PARAMETERS))


def test_origins_of_template_values() -> None:
    text = 'name: "${a}${b}${c:-in}${d}"'
    filled = fill_templates(text, {"a": "1"}, environment={"a": "no", "b": "2"})
    assert [(fill.key, fill.value, fill.origin) for fill in filled.fills] == [
        ("a", "1", "given"), ("b", "2", "environment"), ("c", "in", "in the file"),
    ]  # fmt: skip
    assert filled.text == 'name: "12in${d}"'


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("max_batch_size: ${a}", "four", "${a} (max_batch_size): got 'four', expected a whole number"),
        ("input { data_type: ${a} }", "FP3", "got 'FP3', expected one of: TYPE_INVALID, TYPE_BOOL"),
        ("model_transaction_policy { decoupled: ${a} }", "maybe", "got 'maybe', expected true or false"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_one_line(text: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fill_templates(text, {"a": value}, model="m")
    assert str(caught.value).startswith("model 'm': config.pbtxt:1: template ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_configuration_with_open_templates_says_how_to_fill_them() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pbtxt(LLM, model="m")
    assert str(caught.value).startswith(
        "model 'm': config.pbtxt:2:17: 8 templates are not filled: ${triton_max_batch_size}, "
        "${decoupled_mode}, ${max_queue_delay_microseconds}, ${max_queue_size}, ${width}, "
        "${logits_datatype} and 2 more; "
        "give values: `bls.ModelRepository('FOLDER', fill={'triton_max_batch_size': '8', 'decoupled_mode': 'false', "
    )


@given(any_config(), st.text(alphabet="${}[]<>:\"'#\\\n ab:-max_batch_size{{key"))
def test_any_text_is_read_and_nothing_without_templates_changes(config: ModelConfigMessage, any_text: str) -> None:
    text = to_pbtxt(config)
    if "${" not in text:
        assert fill_templates(text, {"a": "b"}, defaults=True) == Filled(text)
    filled = fill_templates(any_text, {"a": "1"}, defaults=False)
    assert filled.text == any_text or find_templates(any_text)


def test_a_repository_with_values(tmp_path: Path) -> None:
    config = 'max_batch_size: ${size}\noutput { name: "OUT" data_type: TYPE_STRING dims: -1 }\n'
    config += 'parameters { key: "p" value { string_value: "${word}" } }\n'
    write(tmp_path, "m", saying("'x'"))
    (tmp_path / "m" / "config.pbtxt").write_text(config)
    refused = pytest.raises(ConfigError, match=r"a template is not filled: \$\{size\}; .*fill={'size': '8'}")
    with bls.ModelRepository(tmp_path) as repository, refused:
        repository.load("m")
    with bls.ModelRepository(tmp_path, fill={"word": "w"}) as repository:
        record = repository.load("m")
        assert record.warnings == ("templates of config.pbtxt were filled: size=8 (default), word=w (given)",)
        loaded = repository.config("m")
        assert (loaded.max_batch_size, loaded.parameters["p"].string_value) == (8, "w")
    refused = pytest.raises(ConfigError, match="got 'many', expected a whole number")
    with bls.ModelRepository(tmp_path, fill={"size": "many"}) as repository, refused:
        repository.load("m")


def test_a_template_of_the_name_has_that_of_the_folder() -> None:
    filled = fill_templates('name: "#NAME" backend: "#NAME"', model="step", defaults=True)
    assert filled.text == 'name: "step" backend: "#NAME"'


JINJA = """\
max_batch_size: {{ size | default(4) }}
{% for each in inputs %}input { name: "{{ each.name }}" data_type: TYPE_FP32 dims: {{ each.dims * 2 }} }
{% endfor %}{% if use_gpu %}instance_group { kind: KIND_GPU count: {{ count }} }
{% else %}instance_group { kind: KIND_CPU count: {{ count }} }
{% endif %}"""


def test_statements_of_jinja_run_with_the_values_that_there_are() -> None:
    pytest.importorskip("jinja2")
    values = {"inputs": '[{"name": "A", "dims": 2}]', "use_gpu": "false", "m.count": 3}
    filled = fill_templates(JINJA, values, environment={}, defaults=True, model="m")
    config = parse_pbtxt(filled.text, model="m")
    assert (config.max_batch_size, config.input[0].name, config.input[0].dims) == (4, "A", [4])
    assert (config.instance_group[0].count, config.instance_group[0].kind, filled.open) == (3, 2, ())
    assert {fill.key: fill.origin for fill in filled.fills} == dict.fromkeys(("count", "inputs", "use_gpu"), "given")
    filled = fill_templates(JINJA, defaults=True)
    config = parse_pbtxt(filled.text, model="m")
    assert (config.instance_group[0].count, len(config.input)) == (1, 0)
    assert [template.key for template in filled.open] == ["inputs", "use_gpu"]


def test_statements_of_jinja_without_values_say_which_are_missing() -> None:
    pytest.importorskip("jinja2")
    with pytest.raises(ConfigError, match=r"2 templates are not filled: .*\{% if use_gpu %\}"):
        parse_pbtxt("{% if use_gpu %}\nmax_batch_size: {{ n * 2 }}\n{% endif %}{% if b %}{% endif %}", model="m")
    text = "{% if use_gpu or n * 2 %}max_batch_size: 1{% endif %}"
    with pytest.raises(ConfigError, match=r"values are missing: n, use_gpu; `--fill n=VALUE`"):
        fill_templates(text, defaults=True)
    quoted = 'parameters { key: "chat" value { string_value: "{% for m in messages %}{{ m }}{% endfor %}" } }'
    assert fill_templates(quoted, defaults=True).text == quoted
