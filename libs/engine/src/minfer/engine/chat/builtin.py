"""Chat templates for models whose file has none, by name.

Each states the published prompt format of its family in our own words; `bos_token` is left out where
tokenizers put it in front anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CHATML: Final = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

_GEMMA: Final = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- raise_exception('System role not supported') }}
    {%- endif %}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}
    {{- message.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\\n' }}
{%- endif %}
"""

_LLAMA2: Final = """\
{%- set system = '' %}
{%- if messages and messages[0].role == 'system' %}
    {%- set system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- bos_token + '[INST] ' + (system if loop.first else '') + message.content | trim + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message.content | trim + ' ' + eos_token }}
    {%- endif %}
{%- endfor %}
"""

_LLAMA3: Final = """\
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
    {{- message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

_MISTRAL: Final = """\
{{- bos_token }}
{%- set system = '' %}
{%- if messages and messages[0].role == 'system' %}
    {%- set system = messages[0].content + '\\n\\n' %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' + (system if loop.last else '') + message.content + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message.content + eos_token }}
    {%- endif %}
{%- endfor %}
"""

_PHI3: Final = """\
{%- for message in messages %}
    {{- '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>\\n' }}
{%- endif %}
"""

_ZEPHYR: Final = """\
{%- for message in messages %}
    {{- '<|' + message.role + '|>\\n' + message.content + eos_token + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>\\n' }}
{%- endif %}
"""

_VICUNA: Final = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- message.content + '\\n\\n' }}
    {%- elif message.role == 'user' %}
        {{- 'USER: ' + message.content + '\\n' }}
    {%- else %}
        {{- 'ASSISTANT: ' + message.content + eos_token + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'ASSISTANT:' }}
{%- endif %}
"""

BUILTIN: Final[Mapping[str, str]] = {
    "chatml": _CHATML,
    "gemma": _GEMMA,
    "llama2": _LLAMA2,
    "llama3": _LLAMA3,
    "mistral": _MISTRAL,
    "phi3": _PHI3,
    "vicuna": _VICUNA,
    "zephyr": _ZEPHYR,
}
"""Name to source."""
