"""The sandbox: templates from anywhere can neither run away nor reach out, and sane ones are not hindered."""

from __future__ import annotations

import threading
import time

import pytest

from minfer.core.errors import TemplateError
from minfer.engine.chat import ChatTemplate
from minfer.engine.chat.errors import TemplateFailedError, TemplateLimitError, TemplateSyntaxError

_GROW = "{% set ns = namespace(x=START) %}{% for i in range(200) %}{% set ns.x = STEP %}{% endfor %}{{ USE }}"


def _grow(start: str, step: str, use: str = "ns.x") -> str:
    return _GROW.replace("START", start).replace("STEP", step).replace("USE", use)


_MANY = "{% for i in range(90000) %}"
_END = "{% endfor %}"
_LINE = "y" * 9999

_TOO_MUCH = {
    "a huge range": "{% for i in range(10**9) %}x{% endfor %}",
    "a range beyond machine words": "{{ range(10**300)|list }}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "loops in loops in loops": "{% for i in range(90) %}" * 15 + "x" + "{% endfor %}" * 15,
    "doubling with +": _grow("'xx'", "ns.x + ns.x"),
    "doubling with ~": _grow("'xx'", "ns.x ~ ns.x"),
    "a doubling list": _grow("['x' * 99]", "ns.x + ns.x"),
    "a list of itself twice": _grow("[1]", "[ns.x, ns.x]"),
    "a list of itself compared": _grow("[1]", "[ns.x, ns.x]", "ns.x == ns.x"),
    "a tuple of itself twice": _grow("(1,)", "(ns.x, ns.x)", "ns.x|string"),
    "an object of itself twice": _grow("{}", "{'a': ns.x, 'b': ns.x}", "ns.x|tojson"),
    "dict() of itself twice": _grow("{}", "dict(a=ns.x, b=ns.x)", "ns.x|tojson"),
    "squares": _grow("7", "ns.x * ns.x"),
    "a power": "{{ 9 ** (9 ** 9) }}",
    "a long text": "{{ 'x' * 10**10 }}",
    "a long list": "{{ [0] * 10**10 }}",
    "a text times, turned around": "{{ 10**10 * 'x' }}",
    "center": "{{ 'x'.center(10**10) }}",
    "the filter center": "{{ 'x'|center(10**10) }}",
    "ljust": "{{ 'x'.ljust(10**10) }}",
    "zfill": "{{ 'x'.zfill(10**10) }}",
    "expandtabs": "{{ ('\\t' * 100000).expandtabs(1000) }}",
    "join with a long separator": "{{ ('x' * 100000).join(range(9999)|map('string')) }}",
    "the filter join": "{{ range(9999)|join('x' * 100000) }}",
    "replace": "{{ ('x' * 100000).replace('x', 'y' * 100000) }}",
    "replace of nothing": "{{ ('x' * 100000).replace('', 'y' * 10000) }}",
    "the filter replace": "{{ ('x' * 100000)|replace('x', 'y' * 100000) }}",
    "format": "{{ '{:>10000000000}'.format('') }}",
    "a computed width": "{{ '{:>{}}'.format('', 10**10) }}",
    "percent": "{{ '%10000000000d' % 1 }}",
    "percent with a star": "{{ '%*d' % (10**10, 1) }}",
    "the filter format": "{{ '%10000000000d'|format(1) }}",
    "indent": "{{ 'x\\n'|indent(10**10) }}",
    "indent of many lines": "{{ ('\\n' * 1000000)|indent(1000) }}",
    "tojson": "{{ [[1]]|tojson(indent=10**10) }}",
    "tojson with long separators": "{{ range(999)|list|tojson(separators=('x' * 100000, 'y')) }}",
    "batch": "{{ [1]|batch(10**10, 0)|list }}",
    "slice": "{{ [1]|slice(10**10)|list }}",
    "round": "{{ 1.5|round(10**9, 'floor') }}",
    "sum of lists": "{{ ([[0] * 100] * 100000)|sum(start=[]) }}",
    "output": _MANY + _LINE + _END,
    "a macro": "{% macro m() %}" + _MANY + _LINE + _END + "{% endmacro %}{% set x = m() %}",
    "a block": "{% set x %}" + _MANY + _LINE + _END + "{% endset %}",
    "a filter block": "{% filter upper %}" + _MANY + _LINE + _END + "{% endfilter %}",
    "many copies": "{% set a = 'x' * 900000 %}" + _MANY + "{% set b = a[1:] %}" + _END,
    "many texts kept": _grow("[]", "ns.x + ['x' * 900000 ~ i]"),
    "many comparisons": "{% set a = ['x' * 1000] * 1000 %}{% set b = [('x' * 500) ~ ('x' * 500)] * 1000 %}"
    + _MANY
    + "{% if a == b %}{% endif %}"
    + _END,
    "many searches": "{% set a = 'x' * 900000 %}" + _MANY + "{% if 'y' in a %}{% endif %}" + _END,
    "a date": "{{ strftime_now('%100000000d') }}",
    "a long source": "x" * 200_000,
}


@pytest.mark.parametrize("name", _TOO_MUCH)
def test_runaway_templates_are_stopped(name: str) -> None:
    n_threads = threading.active_count()
    begin = time.thread_time()
    with pytest.raises(TemplateLimitError) as caught:
        ChatTemplate(_TOO_MUCH[name]).render([{"role": "user", "content": "Hi"}])
    assert time.thread_time() - begin < 6
    assert threading.active_count() == n_threads
    assert caught.value.exit_status == 5


def test_a_branching_recursion_runs_into_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minfer.engine.chat.template._SECONDS", 0.2)
    source = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}"
    with pytest.raises(TemplateLimitError, match=r"more than 0\.2 seconds|more work"):
        ChatTemplate(source).render([])


@pytest.mark.parametrize(
    "source",
    [
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ ''.__class__.__mro__ }}",
        "{{ (''|attr('__class__')).x }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ self.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ 'x'.encode() }}",
        "{{ (1).to_bytes(10**10, 'big') }}",
        "{{ {}.fromkeys(range(9)) }}",
        "{% include '/etc/passwd' %}",
        "{{ lipsum() }}",
        "{{ 1 / 0 }}",
        "{{ missing.attribute }}",
    ],
)
def test_what_templates_may_not_do(source: str) -> None:
    with pytest.raises(TemplateFailedError):
        ChatTemplate(source).render([{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 9000 + "1" + ")" * 9000 + " }}",
        "{% if x %}" * 900 + "{% endif %}" * 900,
        "{% if %}",
        "{% autoescape true %}{% endautoescape %}",
        "{{ x|random }}",
    ],
)
def test_sources_that_cannot_be_compiled(source: str) -> None:
    with pytest.raises(TemplateSyntaxError):
        ChatTemplate(source).render([])


@pytest.mark.parametrize(
    ("source", "prompt"),
    [
        ("{{ [3, 1, 2]|sort|join(', ') }}", "1, 2, 3"),
        ("{{ [{'n': 1}, {'n': 2}]|map(attribute='n')|sum }}", "3"),
        ("{{ {'b': 1, 'a': 'é<'}|tojson }}", '{"b": 1, "a": "é<"}'),
        ("{{ {'a': [1]}|tojson(indent=2) }}", '{\n  "a": [\n    1\n  ]\n}'),
        ("{% for k, v in {'a': 1}.items() %}{{ k ~ v }}{% endfor %}", "a1"),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "13"),
        ("{% for x in 'ab' %}{{ loop.index }}/{{ loop.length }}{{ x }} {% endfor %}", "1/2a 2/2b "),
        ("{% generation %}a{% endgeneration %}b", "ab"),
        ("{% macro m(x) %}<{{ x }}>{{ caller() }}{% endmacro %}{% call m(1) %}c{% endcall %}", "<1>c"),
        ("{% set x %} a {% endset %}[{{ x|trim }}]", "[a]"),
        ("{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB"),
        (
            "{% set s = namespace(n=0) %}{% for i in [1, 2] %}{% set s.n = s.n + i %}{% endfor %}{{ s.n }}",
            "3",
        ),
        ("{{ 'a-b'.split('-')[-1] }}{{ 'x'.center(5) }}|{{ '%s %02d' % ('a', 3) }}", "b  x  |a 03"),
        ("{{ '{} {x}'.format(1, x=2) }}{{ '{a}'.format_map({'a': 3}) }}", "1 23"),
        ("{{ 'abc'[::-1] }}{{ [1, 2][1:] }}{{ 'a' in 'abc' }}{{ 2 ** 10 }}{{ 7 % 4 }}", "cba[2]True10243"),
        ("{{ namespace(x=1) }}{{ '<'|e }}{{ '<'|safe + '<' }}", "<Namespace>&lt;<<"),
        ("{{ missing }}{{ missing|default('d') }}{{ none is none }}", "dTrue"),
        ("    {% if true %}\n  a\n    {% endif %}\n", "  a\n"),
    ],
)
def test_what_templates_may_do(source: str, prompt: str) -> None:
    (segment,) = ChatTemplate(source).render([])
    assert segment.text == prompt
    assert segment.is_template


def test_long_conversations_are_not_hindered() -> None:
    source = (
        "{% for m in messages[::-1] %}{% set i = (messages|length - 1) - loop.index0 %}{% endfor %}"
        "{% for m in messages %}{{ '<|im_start|>' + m.role }}{{ m.content|trim + '<|im_end|>' }}{% endfor %}"
    )
    messages = [{"role": "user", "content": "word " * 200} for _ in range(1500)]
    segments = ChatTemplate(source).render(messages)
    assert sum(len(segment.text) for segment in segments if not segment.is_template) == 1500 * 999


def test_compiling_once_serves_many_threads() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }};{% endfor %}")
    prompts: dict[int, str] = {}

    def render(n: int) -> None:
        segments = template.render([{"role": "user", "content": str(n)}] * 200)
        prompts[n] = "".join(segment.text for segment in segments)

    threads = [threading.Thread(target=render, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert prompts == {n: f"{n};" * 200 for n in range(8)}


def test_every_failure_is_a_template_error() -> None:
    for error in (TemplateLimitError, TemplateFailedError, TemplateSyntaxError):
        assert issubclass(error, TemplateError)
