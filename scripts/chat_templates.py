# SPDX-License-Identifier: Apache-2.0
"""Chat templates for scripts/make_jinja_golden.py, of our own writing: what the templates of model families do."""
G = "{% if add_generation_prompt %}"
ROLES = ("{% for message in messages %}{% if message['role'] == 'user' %}U{% elif message['role'] == 'assistant' %}A"
         "{% else %}S{% endif %}{% endfor %}")


def roles(user, assistant, system, after="", before=""):
    return before + ROLES.replace("}U{", "}" + user + "{").replace("}A{", "}" + assistant + "{").replace("}S{", "}" + system + "{") + after


CHATML = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
CHATML_G = G + "{{ '<|im_start|>assistant\n' }}{% endif %}"
ALTERNATE = ("{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
             "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}{% endfor %}")
SPLIT = "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
C = "message['content']"
TEMPLATES = {
    "chatml": CHATML + CHATML_G,
    "chatml default system": "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}" + CHATML + CHATML_G,
    "chatml im_sep": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '<|im_sep|>' + m['content'] + '<|im_end|>' }}{% endfor %}" + G + "{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}",
    "chatml trimmed": CHATML.replace("m['content']", "m['content'] | trim") + CHATML_G,
    "chatml no line end": "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>' }}{% endfor %}" + CHATML_G,
    "chatml think": CHATML + G + "{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}",
    "policy": "{{ '<|im_start|>system\nPolicy: be kind.\n<|im_end|>\n' }}" + CHATML + "{{ '<|im_start|>system\nPolicy again.<|im_end|>\n' }}" + CHATML_G,
    "smolvlm": "{% for m in messages %}{{ m['role'] | capitalize }}: {{ m['content'] }}<end_of_utterance>\n{% endfor %}" + G + "{{ 'Assistant:' }}{% endif %}",
    "eos after answers": roles("{{ 'User: ' + " + C + " + '\n' }}", "{{ 'Assistant: ' + " + C + " + eos_token }}", "{{ " + C + " + '\n\n' }}", G + "{{ 'Assistant:' }}{% endif %}"),
    "zephyr": roles("{{ '<|user|>\n' + " + C + " + eos_token }}\n", "{{ '<|assistant|>\n' + " + C + " + eos_token }}\n", "{{ '<|system|>\n' + " + C + " + eos_token }}\n", G + "\n{{ '<|assistant|>' }}\n{% endif %}"),
    "zephyr by role": "{% for message in messages %}\n{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token }}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "llama2": SPLIT + ALTERNATE + "{% for message in messages %}{% if loop.index0 == 0 and system %}{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content | trim + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content | trim + ' ' + eos_token }}{% endif %}{% endfor %}",
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}" + G + "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "llama3.1": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- The system message #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "mistral v0.1": roles("{{ '[INST] ' + " + C + " + ' [/INST]' }}", "{{ " + C + " + eos_token + ' ' }}", "{{ raise_exception('Only user and assistant roles are supported!') }}", before="{{ bos_token }}"),
    "mistral v0.2": roles("{{ '[INST] ' + " + C + " + ' [/INST]' }}", "{{ " + C + " + eos_token}}", "{{ raise_exception('Only user and assistant roles are supported!') }}", before="{{ bos_token }}"),
    "mistral v1": SPLIT + "{{ bos_token }}" + roles("{% if loop.first and system %}{{ ' [INST] ' + system + '\n\n' + " + C + " + ' [/INST]' }}{% else %}{{ ' [INST] ' + " + C + " + ' [/INST]' }}{% endif %}", "{{ ' ' + " + C + " + eos_token }}", "{{ raise_exception('no') }}"),
    "mistral v3": SPLIT + "{{ bos_token }}" + roles("{% if loop.last and system %}{{ '[INST] ' + system + '\n\n' + " + C + " + '[/INST]' }}{% else %}{{ '[INST] ' + " + C + " + '[/INST]' }}{% endif %}", "{{ ' ' + " + C + "|trim + eos_token }}", "{{ raise_exception('no') }}"),
    "mistral tekken": SPLIT + "{{ bos_token }}" + roles("{{ '[INST]' }}{% if loop.last and system %}{{ system + '\n\n' }}{% endif %}{{ " + C + " + '[/INST]' }}", "{{ " + C + " + eos_token }}", ""),
    "mistral v7": "{{ bos_token }}" + roles("{{ '[INST]' + " + C + " + '[/INST]' }}", "{{ " + C + " + eos_token }}", "{{ '[SYSTEM_PROMPT]' + " + C + " + '[/SYSTEM_PROMPT]' }}"),
    "mistral namespace": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
{{- user_messages | length }}
""",
    "gemma": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    "gemma3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
""",
    "phi3": roles("{{ '<|user|>\n' + " + C + " + '<|end|>\n' }}", "{{ '<|assistant|>\n' + " + C + " + '<|end|>\n' }}", "{{ '<|system|>\n' + " + C + " + '<|end|>\n' }}", G + "{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"),
    "phi4": "{% for message in messages %}{% if (message['role'] in ['system', 'user']) %}{{'<|im_start|>' + message['role'] + '<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'assistant') %}{{'<|im_start|>assistant<|im_sep|>'}}{% generation %}{{message['content'] + '<|im_end|>'}}{% endgeneration %}{% endif %}{% endfor %}" + G + "{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}",
    "qwen2.5": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "qwen3": """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    "deepseek r1": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<\uff5cUser\uff5c>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<\uff5cAssistant\uff5c>' + content + '<\uff5cend\u2581of\u2581sentence\uff5c>'}}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{'<\uff5cAssistant\uff5c><think>\\n'}}{% endif %}",
    "command r": SPLIT + "{{ bos_token }}{% if system != false %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% for message in messages %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% elif message['role'] == 'assistant' %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% endfor %}" + G + "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}",
    "granite": "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set system_message = \"Today's Date: \" + strftime_now('%B %d, %Y') + '.\\nYou are Granite.' %}{%- set loop_messages = messages %}{%- endif %}{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\n' }}{%- for message in loop_messages %}{{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\n' }}{%- if loop.last and add_generation_prompt %}{{- '<|start_of_role|>assistant' }}{%- if controls %}{{- ' ' + controls | tojson() }}{%- endif %}{{- '<|end_of_role|>' }}{%- endif %}{%- endfor %}",
    "olmo": "{{ bos_token }}" + roles("{{ '<|user|>\n' + " + C + " + '\n' }}", "{% if not loop.last %}{{ '<|assistant|>\n' + " + C + " + eos_token + '\n' }}{% else %}{{ '<|assistant|>\n' + " + C + " + eos_token }}{% endif %}", "{{ '<|system|>\n' + " + C + " + '\n' }}", G + "{{ '<|assistant|>\n' }}{% endif %}"),
    "smollm3": """{%- set system_message = messages[0].content if messages[0].role == "system" else "" -%}
{%- set reasoning_mode = "/no_think" if "/no_think" in system_message else "/think" -%}
{%- set custom = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
<|im_start|>system
## Metadata

Knowledge Cutoff Date: June 2025
Today Date: {{ strftime_now("%d %B %Y") }}
Reasoning Mode: {{ reasoning_mode }}

{{ custom if custom else "You are a helpful AI assistant." }}<|im_end|>
{%- for message in messages if message.role != 'system' %}
    {%- set content = message.content if message.content is string else "" -%}
{{ "\\n<|im_start|>" ~ message.role ~ "\\n" }}{%- if message.role == "assistant" and reasoning_mode == "/no_think" -%}
{{ "<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|im_end|>" }}
    {%- else -%}
{{ content ~ "<|im_end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ "\\n<|im_start|>assistant\\n" }}
{%- endif -%}
""",
    "falcon": "{% for message in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}{% if message['role'] == 'system' %}{{ 'System: ' + message['content'] }}{% elif message['role'] == 'user' %}{{ 'User: ' + message['content'].replace('\r\n', '\n').replace('\n\n', '\n') }}{% else %}{{ 'Falcon: ' + message['content'] }}{% endif %}{% endfor %}" + G + "{{ '\nFalcon:' }}{% endif %}",
    "vicuna": SPLIT + "{{ bos_token }}{{ system if system else 'A chat between a curious user and an assistant.' }}{% for message in messages %}{% if message.role == 'user' %}{{ ' USER: ' ~ message.content | trim }}{% else %}{{ ' ASSISTANT: ' ~ message.content | trim ~ eos_token }}{% endif %}{% endfor %}" + G + "{{ ' ASSISTANT:' }}{% endif %}",
    "alpaca": roles("{{ '### Instruction:\n' + " + C + "|trim + '\n\n' }}", "{{ '### Response:\n' + " + C + "|trim + eos_token + '\n\n' }}", "{{ " + C + " + '\n\n' }}", G + "{{ '### Response:\n' }}{% endif %}"),
    "list of parts": "{% for m in messages %}{{ m.role | upper }}: {% for part in m.content %}{% if part is mapping and part.type == 'image' %}{{ raise_exception('no images') }}{% elif part is mapping %}{{ part.text }}{% else %}{{ part }}{% endif %}{% endfor %}\n{% endfor %}",
    "macro": "{% macro turn(role, text, end='<|im_end|>', nl=true) %}{{ '<|im_start|>' ~ role ~ '\n' ~ text ~ end }}{% if nl %}{{ '\n' }}{% endif %}{% endmacro %}{% for m in messages %}{{ turn(m.role, text=m.content) }}{% endfor %}{{ turn('assistant', '', end='', nl=false) if add_generation_prompt }}",
    "call block": "{% macro box(kind) %}<{{ kind }}>{{ caller(kind | upper) }}</{{ kind }}>{% endmacro %}{% for m in messages %}{% call(k) box(m.role) %}{{ k }}: {{ m.content }}{% endcall %}{% endfor %}",
    "block set": "{% for m in messages %}{% set text %}  {{ m.content }} {{ loop.index }}/{{ loop.length }}{% endset %}{{ text | trim }};{% set low | lower %}{{ m.content }}{% endset %}{{ low }}|{% endfor %}",
    "namespace count": "{% set ns = namespace(n=0, seen='') %}{% for m in messages %}{% set ns.n = ns.n + m.content | length %}{% set ns.seen = ns.seen ~ m.role[0] %}{% endfor %}{{ ns.n }} {{ ns.seen }} {{ ns.missing is defined }}",
    "tojson": "{% for m in messages %}{{ m | tojson }}\n{{ m | tojson(indent=2) }}\n{{ {'a': [1, 2.5, none, true], 'b': {}, 'c': m.content} | tojson(ensure_ascii=true) }}{{ m | tojson(sort_keys=true, separators=(',', ':')) }}{% endfor %}",
    "loop": "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.previtem.role if loop.previtem is defined else '-' }}{{ loop.nextitem.role if loop.nextitem is defined }}{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }};{% else %}none{% endfor %}",
    "break": "{% for m in messages %}{% if loop.index == 3 %}{% break %}{% endif %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.content }}|{% endfor %}",
    "for filter": "{% for m in messages if m.role != 'system' %}{{ loop.index }}{{ m.content }}{% else %}empty{% endfor %}{% for k, v in messages[0].items() %}{{ k }}={{ v }},{% endfor %}",
    "whitespace": "  {% if true %}\n   a {{ messages | length }}  \n  {%- if true -%}  b  {%- endif %}\n\n   {# note #}\n  c {%+ if true %} d{% endif +%}\n\t{% set x = 1 %}\n e\n{% raw %} {{ x }} {% endraw %}\n f {{- 'g' -}}  \n h\n{%- endif %}\n\n",
    "slices": "{{ messages[-1].content[:3] }}|{{ messages[-1].content[-2:] }}|{{ messages[-1].content[::-1] }}|{{ messages[1:] | length }}|{{ messages[:-1] | length }}|{{ messages[::2] | map(attribute='role') | join(',') }}|{{ 'abcdef'[1:5:2] }}|{{ 'abc'[7:] }}|{{ [1, 2, 3][-9:2] }}",
    "strings": "{% set t = messages[-1].content %}{{ t.strip() }}|{{ t.lstrip() }}|{{ t.rstrip() }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.title() }}|{{ t.capitalize() }}|{{ t.split() }}|{{ t.split('e') }}|{{ t.split('e', 1) }}|{{ t.rsplit('e', 1) }}|{{ t.startswith(' ') }}|{{ t.endswith(('?', '!')) }}|{{ t.replace('e', 'EE', 1) }}|{{ t.find('e') }}|{{ t.count('e') }}|{{ '-'.join(['a', 'b']) }}|{{ '{} {0}'.format if false }}{{ '{}-{x}'.format(t, x=3) }}|{{ t.splitlines() }}|{{ t.partition('e') }}|{{ t.isdigit() }}|{{ 'xxayx'.strip('x') }}|{{ 'abc'.removeprefix('a') }}",
    "filters": "{% set l = ['b', 'A', 'c', 'a'] %}{{ l | sort }}{{ l | sort(reverse=true) }}{{ l | unique | list }}{{ l | reverse | list }}{{ l | first }}{{ l | last }}{{ l | min }}{{ l | max }}{{ [3, 1, 2] | sum }}{{ 3.14159 | round(2) }}{{ 3.5 | round }}{{ '42' | int }}{{ 'x' | int(7) }}{{ '2.5' | float }}{{ -3 | abs }}{{ {'b': 1, 'a': 2} | dictsort }}{{ {'b': 1} | items | list }}{{ nothing | default('d') }}{{ '' | default('e', true) }}{{ 'a b' | title }}{{ 'a\nb\n\nc' | indent(2) }}{{ 'a\nb' | indent(2, true) }}{{ 'x' | replace('x', 'y') }}{{ l | map('upper') | join('+') }}{{ l | select('in', ['a', 'b']) | list }}{{ l | reject('equalto', 'a') | list }}{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='role') | list }}{{ messages | map(attribute='x', default='?') | join }}{{ 5 | string ~ 'x' }}{{ l | length }}{{ l | count }}{{ [1, 2, 3, 4, 5] | batch(2) | list }}{{ 'a b c' | wordcount }}{{ 'xay' | trim('x') }}",
    "tests": "{% for v in [none, true, false, 0, 1, 2.5, '', 'a', [], [1], {}, {'a': 1}, missing] %}{{ v is defined }}{{ v is none }}{{ v is string }}{{ v is mapping }}{{ v is sequence }}{{ v is iterable }}{{ v is number }}{{ v is boolean }}{{ v is true }}{{ v is false }}{{ v is integer }}{{ v is float }}{{ v is undefined }}{{ v is not none }};{% endfor %}{{ 2 is even }}{{ 3 is odd }}{{ 4 is divisibleby 2 }}{{ 1 is eq 1 }}{{ 1 is ne(2) }}{{ 1 is in [1] }}{{ 'a' is equalto 'a' }}{{ 1 is lt 2 }}{{ 'A' is upper }}{{ 'a' is lower }}",
    "operators": "{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' in 'abc' }} {{ 'a' not in ['b'] }} {{ not true or true and false }} {{ 'a' ~ 1 ~ none ~ true }} {{ [1] + [2] }} {{ 'ab' * 3 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ (1, 'x') }} {{ {'a': [1, {'b': 'c'}]} }} {{ 1.0 }} {{ 1e20 }} {{ 0.1 + 0.2 }} {{ -2 | abs }} {{ '%s is %d' % ('x', 3) }} {{ 'a' if false }} {{ 1 if true else 2 }} {{ true == 1 }} {{ none == false }} {{ \"it's\" }} {{ [\"it's\", 'q\"'] }} {{ 10 / 4 }} {{ 10 / 5 }} {{ 1_000 }}",
    "functions": "{{ range(5) | list }}{{ range(1, 10, 3) | list }}{{ range(5, 0, -2) | list }}{{ dict(a=1, b='x') }}{% set j = joiner(', ') %}{% for m in messages %}{{ j() }}{{ m.role }}{% endfor %}{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ strftime_now('%Y-%m-%d %H %j %A %-d') | length > 10 }}",
    "scoping": "{% set x = 1 %}{% for m in messages %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 3 %}{% endif %}{{ x }}{% with x = 4, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}{% macro f(a) %}{{ a }}{{ x }}{% set x = 9 %}{% endmacro %}{{ f(1) }}{{ x }}{% for i in [1, 2] %}{% for j in [3] %}{{ loop.index }}{{ i }}{{ j }}{% endfor %}{{ loop.index }}{% endfor %}{% filter upper %}ab{{ x }}{% endfilter %}",
    "get": "{% for m in messages %}{{ m.get('role') }}{{ m.get('name', '-') }}{{ m.get('x') }}{{ m.name }}{{ m['name'] }}{{ 'content' in m }}{{ m.keys() | list }}{{ m.values() | list | length }}{% endfor %}",
    "escapes": "{{ 'a\\tb\\n\\x41\\u00e9\\'\\\"\\\\' }}{{ \"\\U0001F600\" }}{{ 'a' 'b' }}{{ '\\d' }}",
    "unpack": "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% for x, y in [[1, 2], [3, 4]] %}{{ x + y }}{% endfor %}{% set t = (1,) %}{{ t }}{{ () }}",
    "no system": "{% if messages[0].role == 'system' %}{{ raise_exception('System: ' ~ messages[0].content) }}{% endif %}{{ messages[0].content }}",
    "attribute of undefined": "{{ messages[7].content }}",
    "adds none": "{{ messages[0].content + none }}",
    "append": "{% set l = [] %}{{ l.append(1) }}{{ l }}",
    "unknown filter": "{{ messages | frobnicate }}",
    "syntax": "{% if messages %}{{ 'a' }",
    "system in the middle": "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System must be first') }}{% endif %}{{ m.role ~ m.content }}{% endfor %}",
    "last system moves": SPLIT + "{% for m in messages %}{% if loop.last and system %}{{ '<|im_start|>system\n' + system + '<|im_end|>\n' }}{% endif %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}" + CHATML_G,
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}\n{% endif %}{% endfor %}",
    "comments": "{# a #}{{ messages[0].role }}{#- b -#}  {{ messages[0].content }}  {#\n long\n #}\nend",
    "special tokens": "{{ bos_token }}{{ eos_token }}{{ unk_token is defined }}{{ pad_token }}{{ messages[0].content }}{{ tools }}{{ documents is none }}{{ add_generation_prompt }}",
}
