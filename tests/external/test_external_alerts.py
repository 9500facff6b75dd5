"""Rules of thumb: raised once, taken back once, silent where a number is not known."""

from __future__ import annotations

from specctl.events import Interval
from specctl.external.alerts import Alerts
from specctl.metrics import fold


def interval(accepted: int, drafted: int = 100, seconds: float = 1.0, t_d=None) -> Interval:
    return Interval(
        seconds, 50, 25, drafted, accepted, 50 + accepted, (), None, True, "s", 1.0, None, t_d
    )


def texts(alerts: Alerts, *records) -> list[str]:
    return [f"{one.kind}: {one.text}" for record in records for one in alerts.enter(record)]


def test_low_acceptance_is_said_once_and_taken_back_once():
    alerts = Alerts()
    low = texts(alerts, *[interval(30)] * 10)
    assert len(low) == 1
    assert low[0].startswith("alert: acceptance 0.30 is below 0.40")
    back = texts(alerts, *[interval(60)] * 40)
    assert [one for one in back if one.startswith("note: acceptance 0.4")]
    assert alerts.raised == 2  # low, and risen from its own baseline
    assert any("risen to" in one for one in back)


def test_a_rate_at_the_limit_does_not_flap():
    alerts = Alerts()
    said = texts(alerts, *[interval(39 + i % 3) for i in range(200)])
    assert len(said) <= 1


def test_drift_is_against_its_own_baseline():
    alerts = Alerts()
    assert texts(alerts, *[interval(80)] * 40) == []
    said = texts(alerts, *[interval(60)] * 40)
    assert len(said) == 1
    assert "fallen to" in said[0]
    assert "its own baseline here was 0.80" in said[0]


def test_few_tokens_say_nothing():
    assert texts(Alerts(), *[interval(0, drafted=2)] * 40) == []


def test_shares_only_where_they_are_known():
    assert texts(Alerts(), interval(80)) == []
    said = texts(Alerts(), interval(80, t_d=0.31))
    assert said == ["alert: drafting takes 31 % of a cycle, more than 20 % (rule of thumb)"]
    assert texts(Alerts(), interval(80, t_d=0.19)) == []


def test_verification_outside_its_band():
    from specctl.events import Cycle, Decision

    def cycle(t_v: float, split: bool = True) -> Cycle:
        return Cycle(
            0, (), "d", 4, (1,) * 4, 3, (1,) * 4, "", 0.01, t_v, 0.1 - t_v - 0.01, 0.0, None, 0,
            0.0, Decision("draft", ""), split=split,
        )  # fmt: skip

    said = texts(Alerts(), *[cycle(0.03)] * 30)
    assert said == [
        "alert: verification takes 30 % of a cycle, outside 42–95 % (rule of thumb)",
    ]
    assert texts(Alerts(), *[cycle(0.03, split=False)] * 30) == []


def test_one_look_is_judged_without_a_window():
    said = Alerts().once(fold([interval(30, t_d=0.5)]))
    assert [one.text.split(" ")[0] for one in said] == ["acceptance", "drafting"]
