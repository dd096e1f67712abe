import pytest

from tailrace.toolchain.addresses import redact_addresses


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tried https://user:key@mirror.example.com/a/b.jar now", "tried <address> now"),
        (
            "Host registry.example.org not found. url=http://registry.example.org/x",
            "Host <host> not found. url=<address>",
        ),
        ("host='files.example.org', port=443", "host='<host>', port=443"),
    ],
)
def test_addresses_are_removed(text: str, shown: str) -> None:
    assert redact_addresses(text) == shown


@pytest.mark.parametrize(
    "text",
    ["java.net.ConnectException: Connection refused", "org.apache.kafka#kafka-clients;3.9.2", "a/b.jar"],
)
def test_text_that_resembles_an_address_is_kept(text: str) -> None:
    assert redact_addresses(text) == text
