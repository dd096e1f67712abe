from tailrace.dead_letters.group import Group, groups_of

from .letters import TIME_MS, letter


def test_letters_are_counted_by_reason_and_topic() -> None:
    letters = [
        letter(time=TIME_MS + 5, error="newest"),
        letter(topic="returns"),
        letter(time=TIME_MS + 1, error="first"),
        letter(reason="not_utf8"),
        letter(reason="not_utf8", topic="returns"),
        letter(time=TIME_MS + 3, error="between"),
    ]
    groups = groups_of(letters)
    assert groups[0] == Group("not_json", "orders", 3, TIME_MS + 1, TIME_MS + 5, "newest")
    assert [(group.reason, group.topic, group.count) for group in groups[1:]] == [
        ("not_json", "returns", 1),
        ("not_utf8", "orders", 1),
        ("not_utf8", "returns", 1),
    ]
    assert groups_of([]) == []
