from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from diagnose.cli.main import cli
from diagnose.errors import ConfigError, UsageError
from diagnose.model import Impact
from diagnose.watch import alerts
from diagnose.watch.record import Note
from diagnose.watch.services import VARIABLE, describe, load_services
from diagnose.watch.since import Since

if TYPE_CHECKING:
    from pathlib import Path

    from watch_support import Receiver, Room

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # of apprise

Lay = "Callable[..., Path]"


def note(code: str, ratio: float = 0.1, severity: str = "warning") -> Note:
    return Note(
        code=code,
        severity=severity,
        title=f"Title {code}",
        message="Something.",
        fingerprint=code,
        impact=Impact(1, ratio),
    )


def series(lay: Lay, *paces: float) -> None:
    for number, slow in enumerate(paces):
        lay(f"job_{number}", seed=number, slow=slow, start_s=number * 100)


def test_a_web_hook_gets_one_message_for_a_regression_and_none_for_equal_runs(
    room: Room, lay: Lay, receiver: Receiver
) -> None:
    services = load_services(None, {VARIABLE: receiver.address})
    series(lay, 1, 1, 1, 1.2, 1.2)
    look = room.watcher(services, notify=True, link_prefix="https://runs.example/diagnose/").look()
    assert look.unsent == ()
    (message,) = receiver.messages
    assert message["title"].startswith("job: job_3: 1")
    assert message["title"].endswith("% slower")
    assert "Compute took" in message["message"]
    record = next(item for item in look.published if item.name == "job_3")
    assert f"https://runs.example/diagnose/{record.folder}/report.html" in message["message"]
    assert f"Alert {record.alert.id}" in message["message"]
    room.watcher(services, notify=True).look()
    assert len(receiver.messages) == 1


def test_mail_goes_out_over_a_real_server(room: Room, lay: Lay, monkeypatch: pytest.MonkeyPatch) -> None:
    controller_module = pytest.importorskip(
        "aiosmtpd.controller", reason="aiosmtpd is not installed: no local mail server"
    )
    letters = []

    class Keep:
        async def handle_DATA(self, server: object, session: object, envelope: object) -> str:  # noqa: N802 - the name of the hook
            letters.append(envelope)
            return "250 OK"

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    controller = controller_module.Controller(Keep(), hostname="127.0.0.1", port=port)
    controller.start()
    try:
        address = (
            f"mailto://127.0.0.1:{port}/?from=diagnose@example.org&to=ops@example.org&smtp=127.0.0.1&mode=insecure"
        )
        series(lay, 1, 1.2)
        monkeypatch.setenv(VARIABLE, address)
        arguments = [
            "watch",
            str(room.inbox),
            "--out",
            str(room.out),
            "--once",
            "--settle",
            "0",
            "--jobs",
            "1",
            "--notify",
        ]
        result = CliRunner().invoke(cli, arguments)
    finally:
        controller.stop()
    assert result.exit_code == 0, result.output
    (letter,) = letters
    assert letter.rcpt_tos == ["ops@example.org"]
    assert b"slower" in letter.content


def test_what_a_service_refuses_is_sent_at_the_next_look(room: Room, lay: Lay, receiver: Receiver) -> None:
    services = load_services(None, {VARIABLE: receiver.address})
    series(lay, 1, 1.2)
    receiver.answers.extend([500] * 4)
    look = room.watcher(services, notify=True).look()
    receiver.answers.clear()
    assert look.unsent
    assert "secret-token" not in "".join(room.log)
    assert receiver.messages == []
    assert room.watcher(services, notify=True).look().unsent == ()
    assert len(receiver.messages) == 1


def test_of_two_services_only_the_failing_one_is_tried_again(room: Room, lay: Lay, receiver: Receiver) -> None:
    dead = "json://127.0.0.1:9/nobody"
    services = load_services(None, {VARIABLE: f"{receiver.address} {dead}"})
    series(lay, 1, 1.2)
    assert len(room.watcher(services, notify=True).look().unsent) == 1
    assert len(room.watcher(services, notify=True).look().unsent) == 1
    assert len(receiver.messages) == 1


def test_runs_from_before_notify_was_asked_for_stay_silent(room: Room, lay: Lay, receiver: Receiver) -> None:
    series(lay, 1, 1.2)
    room.watcher().look()
    room.watcher(load_services(None, {VARIABLE: receiver.address}), notify=True).look()
    assert receiver.messages == []


def test_a_dry_run_prints_the_message_and_sends_nothing(
    room: Room, lay: Lay, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, receiver.address)
    series(lay, 1, 1.2)
    arguments = [
        "watch",
        str(room.inbox),
        "--out",
        str(room.out),
        "--once",
        "--settle",
        "0",
        "--jobs",
        "1",
        "--notify",
        "--dry-run",
    ]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert "would send to json-" in result.stdout
    assert "% slower" in result.stdout
    assert "secret-token" not in result.output
    assert receiver.messages == []


def test_the_worst_three_are_told_and_the_rest_counted() -> None:
    from diagnose.findings.compare import FindingChanges

    changes = FindingChanges(
        new=tuple(note(f"N{number}", 0.5 - number / 10) for number in range(4)),
        worse=(note("W"),),
        resolved=(note("R"),),
    )
    since = Since("inconclusive", "Step time as before.", findings=changes, last=RECORD)
    message = alerts.alert("job", "run", "key", since, "report.html", wanted=True, replaced=None)
    lines = message.body.splitlines()
    assert [line[:8] for line in lines if line.startswith("- ")] == [
        "- new: w",
        "- new: w",
        "- new: w",
        "- and 2 ",
        "- resolv",
    ]
    assert message.title == "job: run: findings: 4 new, 1 worse, 1 resolved"


def test_nothing_is_said_twice_of_a_run_analysed_again() -> None:
    from diagnose.findings.compare import FindingChanges

    since = Since("inconclusive", "x.", findings=FindingChanges(new=(note("N"),)), last=RECORD)
    first = alerts.alert("job", "run", "key", since, "l", wanted=True, replaced=None)
    again = alerts.alert("job", "run", "key2", since, "l", wanted=True, replaced=with_alert(first))
    assert first is not None
    assert again is None


def with_alert(alert: object) -> object:
    import msgspec

    return msgspec.structs.replace(RECORD, alert=alert)


def test_secrets_come_from_private_files_only(tmp_path: Path) -> None:
    file = tmp_path / "urls"
    file.write_text("# mine\njson://localhost/secret\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_services(file, {})
    file.chmod(0o600)
    (service,) = load_services(file, {})
    assert service.address == "json://localhost/secret"
    assert "secret" not in describe([service])
    with pytest.raises(ConfigError, match="cannot read"):
        load_services(tmp_path / "none", {})


def test_without_or_with_senseless_addresses_it_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=VARIABLE):
        load_services(None, {})
    with pytest.raises(UsageError, match="none that apprise understands") as error:
        load_services(None, {VARIABLE: "nosuchservice://token-abc"})
    assert "token-abc" not in str(error.value)


def test_addresses_never_stand_in_the_output_folder(room: Room, lay: Lay, receiver: Receiver) -> None:
    series(lay, 1, 1.2)
    room.watcher(load_services(None, {VARIABLE: receiver.address}), notify=True).look()
    for path in room.out.rglob("*"):
        if path.is_file():
            assert b"secret-token" not in path.read_bytes(), path
    assert len(list((room.out / "sent").iterdir())) == 1


def _record() -> object:
    from diagnose.watch.record import Record

    return Record(
        key="k",
        sources_key="s",
        job="job",
        name="last",
        input="i",
        folder="runs/x",
        store="x.duckdb",
        analysed_ns=0,
        order_ns=0,
    )


RECORD = _record()
