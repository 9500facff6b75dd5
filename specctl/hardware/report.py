"""A machine as plain JSON values, with what follows from it: budgets, cores, advice.

`bandwidth` is bytes per second, memory is bytes, null is "not known".
"""

from __future__ import annotations

import dataclasses
from typing import Any

from specctl.hardware.advice import engine_advice, idle_reason, install_command
from specctl.hardware.budget import memory_budget, primary_device
from specctl.hardware.device import Device
from specctl.hardware.host import usable_cores
from specctl.hardware.machine import Machine

SCHEMA = 1


def machine_json(machine: Machine) -> dict[str, Any]:
    """Every field of the snapshot, and the derived values beside them."""
    budget, why = memory_budget(machine, None)
    primary = primary_device(machine)
    engine = None
    if machine.engine is not None:
        engine = dataclasses.asdict(machine.engine)
        known = machine.engine.architectures
        engine["architectures"] = None if known is None else sorted(known)
    return {
        "schema": SCHEMA,
        "simulated": machine.simulated,
        "overrides": list(machine.overrides),
        "host": {
            **dataclasses.asdict(machine.host),
            "usable_cores": usable_cores(machine.host),
            "budget": budget,
            "budget_explained": why,
        },
        "devices": [_device(machine, device) for device in machine.devices],
        "hidden": [dataclasses.asdict(device) for device in machine.hidden],
        "primary": None if primary is None else primary.index,
        "engine": engine,
        "engine_reason": machine.engine_reason or None,
        "gpu_offload": machine.engine is not None and machine.engine.gpu_offload,
        "advice": list(engine_advice(machine)),
        "notes": list(machine.notes),
        "probes": [dataclasses.asdict(probe) for probe in machine.probes],
    }


def _device(machine: Machine, device: Device) -> dict[str, Any]:
    budget, why = memory_budget(machine, device)
    idle = idle_reason(machine, device)
    return {
        **dataclasses.asdict(device),
        "budget": budget,
        "budget_explained": why,
        "idle": idle,
        "install": install_command(device, machine.host.system) if idle else None,
    }
