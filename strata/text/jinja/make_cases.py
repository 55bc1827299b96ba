#!/usr/bin/env python3
"""Writes cases.jsonl, what template_test.cpp renders: templates with their variables and what Jinja (as transformers sets it up) makes of them.

  python3 make_cases.py > cases.jsonl      (needs jinja2)"""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 26, 9, 5, 7)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return env


CHAT = {"messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi, who are you?"},
                     {"role": "assistant", "content": "A <b>model</b>\n"}, {"role": "user", "content": "2 + 2 = ?"}],
        "add_generation_prompt": True}
TOOLS = {"tools": [{"type": "function", "function": {"name": "weather", "description": "Says \"how\" it is – now", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Zürich", "Oslo"]}, "days": {"type": "integer", "default": 1}},
    "required": ["city"]}}}],
    "messages": [{"role": "user", "content": "Rain?"},
                 {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2.5}}}]},
                 {"role": "tool", "name": "weather", "content": "{\"rain\": true}"}]}
VALUES = {"n": 7, "x": 2.5, "big": 1e16, "small": 1e-7, "t": True, "no": None, "s": "Straße 12, ΑΒΓ ends", "e": "", "l": [3, 1, 2], "w": ["b", "A", "c", "a"],
          "d": {"b": 1, "a": [1, {"k": "v'"}], "items": "mine"}, "rows": [{"k": "x", "v": 2}, {"k": "y", "v": 1}, {"k": "x", "v": 3}, {"v": 0}],
          "lines": "one\n  two\n\nthree\n"}

CHATS = [
    # One line a message, with a system prompt of its own and a check of roles.
    """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] | trim %}{% else %}
{% set loop_messages = messages %}{% set system = '' %}{% endif %}
{{- bos_token -}}
{% for message in loop_messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('roles must alternate') }}
    {% endif %}
    {% if loop.first and system %}{% set content = '<<' + system + '>>\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}
    {% if message['role'] == 'user' %}
{{ '[INST] ' + content | trim + ' [/INST]' }}
    {% elif message['role'] == 'assistant' %}
{{ ' ' ~ content ~ ' ' + eos_token }}
    {% endif %}
{% endfor %}""",
    """{%- for message in messages %}{{ '<|' ~ message.role ~ '|>\\n' }}{% generation %}{{ message.content }}{% endgeneration %}{{ '<|end|>' }}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}""",
    """{# a comment #}
{%- set ns = namespace(last=-1, count=0) %}
{%- for m in messages[::-1] %}
  {%- set index = (messages | length - 1) - loop.index0 %}
  {%- if m.role == "user" and ns.last < 0 %}
    {%- set ns.last = index %}
  {%- endif %}
  {%- set ns.count = ns.count + 1 %}
{%- endfor %}
{{- ns.last }}/{{ ns.count }} at {{ strftime_now("%d %b %Y %H:%M") }}
{% macro turn(m, tag="im") -%}
  <|{{ tag }}_start|>{{ m.role }}: {{ m.content | default("nothing", true) }}{{ caller() if caller }}
{%- endmacro %}
{% for m in messages if m.role != "system" %}{{ turn(m) }}|{{ turn(tag="x", m=m) }}{% if loop.last %}!{% else %};{% endif %}

{% endfor %}
{% call turn(messages[0]) %} called{% endcall %}""",
]
TOOL_CHATS = [
    """{%- if tools %}
    {{- "# Tools\\n" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
        {{- "\\n" }}
        {{- tool.function | tojson(indent=2) }}
        {{- tool | tojson(separators=(",", ":"), sort_keys=true) }}
    {%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if message.tool_calls is defined and message.tool_calls is not none %}
        {%- for call in message.tool_calls %}
            {%- if call.function is defined %}{%- set call = call.function %}{%- endif %}
            {{- '{"name": "' ~ call.name ~ '", "arguments": ' }}{{ call.arguments | tojson }}{{ '}' }}
            {%- for k, v in call.arguments.items() %}<{{ k }}>{{ v if v is string else v | tojson }}</{{ k }}>{% endfor %}
            {%- for k, v in call.arguments | dictsort %}[{{ k }}={{ v }}]{% endfor %}
        {%- endfor %}
    {%- elif message['role'] == 'tool' %}
        {{- message.content | tojson }}{{ message.name }}
    {%- else %}{{- message.content }}{%- endif %}
{%- endfor %}""",
]
EXPRESSIONS = """
{{ n }} {{ x }} {{ big }} {{ small }} {{ t }} {{ no }} {{ l }} {{ d }} {{ (1, 'a') }} {{ (1,) }} {{ [1.0, none, true] }} {{ undefined_name }}|
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 + 2 * 3 - 4 }} {{ -2 ** 2 }} {{ +3 }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }} {{ 'a' == 'a' }} {{ true == 1 }} {{ none == false }} {{ {'a': 1} == {'a': 1.0} }}
{{ 1 in l }} {{ 9 not in l }} {{ 'tra' in s }} {{ 'b' in d }} {{ not 1 in l }} {{ 1 and 0 or 'z' }} {{ not t }} {{ e or 'empty' }} {{ 'yes' if n > 3 else 'no' }} {{ 'yes' if n > 9 }}|
{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[::-1] }} {{ l[5:] }} {{ s[0] }} {{ s[-4:] }} {{ s[4] }} {{ s[::3] }} {{ l[9] }}| {{ d['a'][1]['k'] }} {{ d.a[0] }} {{ d['items'] }} {{ d.missing }}|
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('zz', 3) }} {{ d.get('zz') }} {{ d | length }} {{ d | list }}
{{ s | upper }} {{ s | lower }} {{ s | title }} {{ s | capitalize }} {{ 'ab cd'.title() }} {{ 'AbC'.swapcase() }} {{ s.upper() }} {{ 'x'.isupper() }} {{ 'X1'.isupper() }} {{ '12'.isdigit() }} {{ 'ä'.isalpha() }}
{{ '  a b  '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxaxx'.lstrip('x') }}|{{ '\\n a \\t'.rstrip() }}|{{ '..a.' | trim('.') }}|{{ '\u00a0a\u3000'.strip() }}|
{{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ 'a b c'.rsplit(' ', 1) }} {{ ' a  b  c '.split(none, 1) }} {{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'a\\nb'.splitlines(true) }} {{ ''.split() }} {{ ''.split(',') }}
{{ 'abcabc'.replace('b', 'XX') }} {{ 'abcabc'.replace('b', 'X', 1) }} {{ 'abc' | replace('a', '') }} {{ 'abc'.replace('', '-') }} {{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('z') }} {{ 'hello'.index('e') }} {{ 'hello'.count('l') }} {{ 'äöü'.find('ü') }}
{{ 'hello'.startswith('he') }} {{ 'hello'.endswith(('x', 'lo')) }} {{ 'a'.join(['x', 'y']) }} {{ 'ab'.center(6) }}|{{ 'ab'.center(7, '*') }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '0') }}|{{ '-5'.zfill(4) }}|{{ '5'.zfill(3) }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}
{{ l | sort }} {{ l | sort(reverse=true) }} {{ w | sort }} {{ w | sort(case_sensitive=true) }} {{ rows[:3] | sort(attribute='v') | map(attribute='v') | list }} {{ rows[:3] | sort(attribute='k,v') | map(attribute='v') | join(',') }}
{{ l | join('-') }} {{ rows | map(attribute='v') | join(', ') }} {{ rows | map(attribute='k', default='?') | list }} {{ w | map('upper') | list }} {{ ['1', 'x'] | map('int') | list }} {{ rows | selectattr('k', 'defined') | map(attribute='k') | list }}
{{ rows[:3] | selectattr('k', 'equalto', 'x') | list | length }} {{ rows[:3] | rejectattr('k', 'eq', 'x') | list }} {{ l | select('odd') | list }} {{ l | reject('gt', 2) | list }} {{ [0, 1, ''] | select | list }} {{ rows | selectattr('k') | list | count }}
{{ l | first }} {{ l | last }} {{ [] | first }}| {{ l | sum }} {{ rows | sum(attribute='v') }} {{ l | max }} {{ w | min }} {{ rows | max(attribute='v') }} {{ l | length }} {{ s | length }} {{ 'ä' | count }}
{% for k, g in rows[:3] | groupby('k') %}{{ k }}:{{ g | map(attribute='v') | list }};{% endfor %} {{ ['a', 'A', 'b'] | unique | list }} {{ [1, 1, 2] | unique | list }} {{ l | reverse | list }} {{ 'abc' | reverse }} {{ range(5) | batch(2) | list }} {{ range(5) | batch(2, 0) | list }} {{ range(7) | slice(3) | map('list') | list }}
{{ 3.567 | round }} {{ 3.567 | round(2) }} {{ 3.2 | round(0, 'ceil') }} {{ 7 | round }} {{ '12' | int }} {{ '1x' | int }} {{ '3.7' | int }} {{ '0x1f' | int(base=16) }} {{ '2.5' | float }} {{ 'z' | float }} {{ 3 | float }} {{ 3.9 | int }} {{ -3 | abs }} {{ 3 | string + 'a' }}
{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent('> ', blank=true) }}|{{ 'a b c' | wordcount }} {{ '<a & "b">' | e }} {{ 'a b/c?' | urlencode }} {{ {'a b': 'c&'} | urlencode }}
{{ '%s is %d and %.2f%%' | format('x', 3, 2.345) }} {{ '%(a)s-%(b)5s|%(b)-5s|' | format(a=1, b='y') }} {{ '%05d %x' | format(42, 255) }}
{{ 'a long sentence that goes on and on' | truncate(20) }} {{ 'a long sentence that goes on and on' | truncate(20, true) }} {{ 'short' | truncate(3, leeway=5) }}
{{ d | tojson }} {{ s | tojson }} {{ s | tojson(ensure_ascii=true) }} {{ d | tojson(indent=4) }} {{ [] | tojson(indent=2) }} {{ {'x': {}} | tojson(indent=1) }} {{ '\\u00e9\\U0001f600\\n"\\\\' | tojson(ensure_ascii=true) }} {{ [1.0, 1e20, none, true] | tojson }} {{ {1: 2, none: 3} | tojson }} {{ d | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(by='value') }}
{{ no is none }} {{ zz is defined }} {{ zz is undefined }} {{ s is string }} {{ n is number }} {{ n is integer }} {{ x is float }} {{ d is mapping }} {{ l is iterable }} {{ l is sequence }} {{ n is odd }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ t is true }} {{ t is boolean }} {{ n is not none }} {{ 'a' is in 'abc' }} {{ n is eq 7 }} {{ n is gt(3) }} {{ range is callable }} {{ 'ABC' is upper }} {{ n is sameas n }} {{ 'upper' is filter }}
{% set a = 1 %}{% for i in l %}{% set a = i %}{{ a }}{% endfor %}{{ a }} {% if true %}{% set a = 5 %}{% endif %}{{ a }} {% set b, c = 1, 2 %}{{ b }}{{ c }} {% set text %}x{{ n }}{% endset %}{{ text }} {% set up | upper %}abc{% endset %}{{ up }} {% with q = 3, r = n %}{{ q + r }}{% endwith %}{{ q }}|
{% for i in range(3) %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.depth }};{% endfor %} {% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %} {% for i in [] %}x{% else %}none{% endfor %} {% for i in range(2, 10, 3) %}{{ i }},{% endfor %} {% for i in range(3, 0, -1) %}{{ i }}{% endfor %}
{% for x in [[1, [2, 3]], [4]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %} {% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %} {% for c in 'äb' %}[{{ c }}]{% endfor %}
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c=9) }} {{ m(1, 2, 3, 4, z=5) }} {% macro wrap() %}<{{ caller(1) }}>{% endmacro %}{% call(v) wrap() %}v{{ v }}{% endcall %} {% filter upper %}low {{ n }}{% endfilter %}
{% raw %}{{ not run }} {% if %}{% endraw %} {{ '{{' }} {{ "}}" }} {# comment {{ x }} #}end {{ {'a': {'b': 1}}['a']['b'] }} {{ {'a':1}}}
{%- set ns = namespace(a=1) -%} {%- for i in l -%} {%- set ns.a = ns.a + i -%} {%- endfor -%} {{- ns.a -}} {{ ns.b }}|{{ dict(a=1, **{'b': 2}) }} {{ dict([('x', 1)]) }} {{ cycler('a', 'b').next() }} {% set j = joiner('|') %}{{ j() }}a{{ j() }}b
{{ 'a' 'b' }} {{ 'a' ~ 1 ~ none ~ 2.0 }} {{ 'ab' * 3 }} {{ [1] * 2 + [3] }} {{ 1_000 + 0 }} {{ 1.5e3 }} {{ '\\x41\\u0042\\103' if false else 'ok' }} {{ "it's" }} {{ ["it's", 'say "x"', 'b\\\\'] }} {{ loop is defined }} {{ -1|abs }} {{ (2 + 3) * n }}
""".strip().split("\n")
LAYOUT = ["a\n{% if true %}\n  b\n{% endif %}\nc\n", "  {% if true %}  x  {% endif %}  \n y", "a {%- if true -%} b {%- endif +%}\n c", "a\n  {#- c -#}\n b", "{{ 'x' }}\n{{ 'y' -}}  \n z\n\n",
          "  {%+ if true %} x{% endif %}\n", "\t{% set x = 1 %}\n\t{{ x }}\n", "a\r\nb{% if true %}\r\nc{% endif %}", "{% raw -%}\n  x {% endraw %}\ny", "x {# c #}\ny {% if 1 %}\n\n{% endif %}\nz", "{%if 1%}{{1}}{%endif%}", ""]
ERRORS = ["{{ raise_exception('not so') }}", "{{ zz.a }}", "{{ zz + 1 }}", "{% for x in 3 %}{% endfor %}", "{{ 1 // 0 }}", "{{ 'a' + 1 }}", "{{ l.append(1) }}", "{{ d.update({}) }}",
          "{{ n() }}", "{{ [1] < 'a' }}", "{% if %}{% endif %}", "{% for x in l %}", "{{ l | nofilter }}", "{{ l is notest }}", "{{ 1 +", "{% endif %}", "{% include 'x' %}", "{{ range(1000000) }}",
          "{% set d.x = 1 %}", "{{ zz() }}", "{{ l['a']['b'] }}", "{% break %}", "{{ (1, 2 }}", "{{ 'x }}", "{{ @ }}", "{% set a, b = [1] %}", "{{ 'a'.nomethod() }}"]


def main():
    env = environment()

    def case(source, data, trusted=None, fails=False):
        row = {"source": source, "data": data}
        if trusted:
            row["trusted"] = trusted
        try:
            row["text"] = env.from_string(source).render(**data, **(trusted or {}))
            assert not fails, (source, row["text"])
        except Exception as e:
            if not fails:
                raise AssertionError(source) from e
            row["fails"] = True
        print(json.dumps(row, ensure_ascii=False))

    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    for source in CHATS:
        case(source, CHAT, tokens)
    for source in TOOL_CHATS:
        case(source, TOOLS, tokens)
    for source in EXPRESSIONS:
        case(source, VALUES)
    for source in LAYOUT:
        case(source, {})
    for source in ERRORS:
        case(source, VALUES, fails=True)


if __name__ == "__main__":
    main()
