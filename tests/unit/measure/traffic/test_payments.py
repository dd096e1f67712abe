import json
from collections import Counter

from tailrace.demo.fraud import pipeline
from tailrace.measure.traffic.records import PAYMENT_NUMBER_FIELD, SENT_FIELD, payment_maker

COLUMNS = dict(column.split() for column in str(pipeline.sources[0].schema).split(", "))
PYTHON_TYPES = {"long": int, "int": int, "double": float, "string": str}


def test_every_record_is_json_with_exactly_the_columns_of_the_schema() -> None:
    make = payment_maker()
    for number in range(-3, 5000):
        _, value = make(number, 1_700_000_000_000_000_000 + number)
        record = json.loads(value)
        assert record.keys() == COLUMNS.keys()
        assert {name: type(field) for name, field in record.items()} == {
            name: PYTHON_TYPES[kind] for name, kind in COLUMNS.items()
        }
        assert record[PAYMENT_NUMBER_FIELD] == number
        assert record[SENT_FIELD] == 1_700_000_000_000_000_000 + number


def test_the_key_is_the_card() -> None:
    key, value = payment_maker()(17, 0)
    assert key.decode() == json.loads(value)["card"]


def test_records_depend_on_the_seed() -> None:
    first, again, other = payment_maker(1), payment_maker(1), payment_maker(2)
    assert [first(number, 5) for number in range(100)] == [again(number, 5) for number in range(100)]
    assert [first(number, 5) for number in range(100)] != [other(number, 5) for number in range(100)]


def test_payments_vary_enough_for_every_decision() -> None:
    make = payment_maker()
    records = [json.loads(make(number, 0)[1]) for number in range(4096)]
    abroad = sum(record["country"] != record["home_country"] for record in records) / len(records)
    assert 0.05 < abroad < 0.15
    assert all(0 < record["amount"] <= 9999 for record in records)
    assert all(0 <= record["minute_of_day"] < 1440 for record in records)
    assert len(Counter(record["card"] for record in records)) > 1000
