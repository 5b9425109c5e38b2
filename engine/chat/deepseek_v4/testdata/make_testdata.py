"""Writes recorded.json: conversations and completions of our own, and what the encoder that is
published with the DeepSeek-V4 checkpoints makes of them.

    python3 make_testdata.py path/to/encoding_dsv4.py
"""

import importlib.util
import json
import pathlib
import sys

TOOLS = [
    {"type": "function", "function": {
        "name": "mill_speed", "description": "Speed of a mill, \"rpm\"\n\\ é 水",
        "parameters": {"type": "object", "required": ["mill"], "properties": {
            "mill": {"type": "string", "enum": ["wind", "water"]},
            "load": {"type": "number", "minimum": 0.5, "maximum": 1e22, "default": 1e-07},
            "big": {"default": 123456789012345678901234567890}}}}},
    {"type": "function", "function": {"name": "stop", "z": None, "a": [True, -2.25, {}]}},
]


def call(number, name, arguments):
    return {"id": f"call_{number}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


def user(text, **more):
    return {"role": "user", "content": text, **more}


def assistant(text, reasoning=None, calls=None, **more):
    message = {"role": "assistant", "content": text, **more}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls is not None:
        message["tool_calls"] = calls
    return message


def tool(number, content):
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": content}


SYSTEM = {"role": "system", "content": "You look after a mill."}
FORMAT = {"type": "object", "properties": {"rpm": {"type": "number"}}}
ASK = [SYSTEM, user("How fast?")]
TALK = ASK + [assistant("12 rpm", "think \n first"), user("And now?")]
CALLS = [
    {**SYSTEM, "tools": TOOLS}, user("Both!"),
    assistant("Sure.", "two calls", [
        call(7, "mill_speed", '{"mill": "wind\\n\\u6c34", "load": 1E22, "x": [1,{"k": null}]}'),
        call(8, "stop", "{}"), call(9, "stop", "not json")]),
    tool(9, "nine"), tool(7, [{"type": "text", "text": "seven"}, {"type": "image"}]),
    user("meanwhile"), tool(8, ""), assistant("Done.", "all there"), user("Thanks")]
MIXED = [
    {"role": "latest_reminder", "content": "2026-11-30"}, user("one"), user("two"),
    assistant("half", "old", wo_eos=True),
    {"role": "developer", "content": "Be brief.", "response_format": FORMAT},
    assistant("ok", "older"), {"role": "latest_reminder", "content": "later"}, user("three"),
    assistant("", "newest", [call(1, "stop", '{"a": "b"}')])]
DEVELOPER = [SYSTEM, {"role": "developer", "content": "Use them.", "tools": TOOLS[:1],
                      "response_format": FORMAT}]

CONVERSATIONS = [ASK, TALK, CALLS, MIXED, DEVELOPER, TALK[:-1], CALLS[:4], CALLS[:7],
                 TALK[:3] + [user("title?", task="title")],
                 ASK[:1] + [user("go", task="action"), assistant("going", "unseen"), user("on")]]
SETTINGS = [("chat", True, None), ("thinking", True, None), ("thinking", False, "max")]

COMPLETIONS = [
    "12 rpm", " \n", "a\n\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"stop\">\n\n"
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"mill_speed\">\n"
    "<｜DSML｜parameter name=\"mill\" string=\"true\">a \"mill\"\n\t\\ 水</｜DSML｜parameter>\n"
    "<｜DSML｜parameter name=\"x\" string=\"false\">[1, {\"k\":1e-07}]</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"stop\">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
]
EOS = "<｜end▁of▁sentence｜>"


def variants(text):
    """The text with its end, without, damaged, and cut off in places."""
    yield text + EOS
    yield text
    yield text + EOS + "x"
    yield text.replace("invoke", "invok", 1) + EOS
    yield text.replace("</", "</think></", 1) + EOS
    yield text.replace("\"x\"", "\"mill\"") + EOS
    for part in (0.4, 0.7):
        yield text[:int(len(text) * part)]


def parsed(encoder, text, mode):
    try:
        return encoder.parse_message_from_completion_text(text, mode)
    except (ValueError, AssertionError):
        return None


def main():
    spec = importlib.util.spec_from_file_location("encoder", sys.argv[1])
    encoder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(encoder)
    prompts = [
        {"messages": messages, "thinking_mode": mode, "drop_thinking": drop,
         "reasoning_effort": effort,
         "prompt": encoder.encode_messages(messages, mode, drop_thinking=drop,
                                           reasoning_effort=effort)}
        for messages in CONVERSATIONS for mode, drop, effort in SETTINGS]
    parses = []
    for text in COMPLETIONS:
        for completion in dict.fromkeys(variants(text)):
            for mode, full in (("chat", completion), ("thinking", "why</think>" + completion)):
                parses.append({"completion": full, "thinking_mode": mode,
                               "message": parsed(encoder, full, mode)})
    out = pathlib.Path(__file__).with_name("recorded.json")
    lines = {key: ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
             for key, cases in (("prompts", prompts), ("parses", parses))}
    out.write_text(f'{{"prompts": [\n{lines["prompts"]}],\n"parses": [\n{lines["parses"]}]}}\n',
                   encoding="utf-8")


if __name__ == "__main__":
    main()
