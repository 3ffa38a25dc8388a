from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dial.agent.files import Tree, Unavailable
from dial.agent.processes import Processes
from dial.agent.run_queue import CpuRunQueue, TaskRunQueue
from dial.types import NoData

Plant = Callable[[Mapping[str, str]], Tree]


def test_wait_is_summed_over_threads_and_processes(plant: Plant) -> None:
    tree = plant(
        {
            "/proc/7/task/7/schedstat": "900 100000000 5\n",
            "/proc/7/task/8/schedstat": "900 200000000 5\n",
            "/proc/9/task/9/schedstat": "900 0 5\n",
        }
    )
    queue = TaskRunQueue(tree, lambda: [7, 9])
    before = queue.read()
    plant(
        {
            "/proc/7/task/7/schedstat": "999 400000000 6\n",
            "/proc/7/task/8/schedstat": "999 300000000 6\n",
            "/proc/7/task/10/schedstat": "1 50000000 1\n",
            "/proc/9/task/9/schedstat": "999 50000000 6\n",
        }
    )
    # 0.3 + 0.1 + 0.05 (thread born meanwhile) + 0.05 = 0.5 s in 2 s
    assert queue.rates(before, queue.read(), 2.0) == {"run_queue_wait_cores": 0.25}


def test_the_past_of_a_process_first_seen_now_does_not_count(plant: Plant) -> None:
    pids = [7]
    tree = plant({"/proc/7/task/7/schedstat": "1 0 1", "/proc/9/task/9/schedstat": "1 9000000 1"})
    queue = TaskRunQueue(tree, lambda: pids)
    before = queue.read()
    pids.append(9)
    assert queue.rates(before, queue.read(), 1.0) == {"run_queue_wait_cores": 0.0}


def test_a_process_that_vanishes_is_left_out(plant: Plant) -> None:
    queue = TaskRunQueue(plant({"/proc/7/task/7/schedstat": "1 0 1"}), lambda: [7, 404])
    assert queue.read() == {7: {7: 0}}


def test_all_processes_replaced_is_no_data(plant: Plant) -> None:
    queue = TaskRunQueue(plant({}), list)
    assert isinstance(
        queue.rates({7: {7: 1}}, {9: {9: 5}}, 1.0)["run_queue_wait_cores"],
        NoData,
    )


def test_no_readable_thread_is_unavailable(plant: Plant) -> None:
    with pytest.raises(Unavailable, match="CONFIG_SCHED_INFO"):
        TaskRunQueue(plant({}), lambda: [7]).read()


SCHEDSTAT = """version 17
timestamp 4294937296
cpu0 0 0 0 0 0 0 111 {0} 33
domain0 MC 3 1 2 3 4 5 6 7 8
cpu1 0 0 0 0 0 0 111 {1} 33
"""


def test_without_processes_the_wait_is_that_of_all_cpus(plant: Plant) -> None:
    queue = CpuRunQueue(plant({"/proc/schedstat": SCHEDSTAT.format(1000, 2000)}))
    before = queue.read()
    plant({"/proc/schedstat": SCHEDSTAT.format(500_001_000, 250_002_000)})
    assert queue.rates(before, queue.read(), 1.0) == {"run_queue_wait_cores": 0.75}
    # a CPU whose counter fell was replugged
    assert isinstance(
        queue.rates(queue.read(), before, 1.0)["run_queue_wait_cores"],
        NoData,
    )


def test_a_kernel_without_schedstat_says_what_to_do(plant: Plant) -> None:
    with pytest.raises(Unavailable, match="--process-name"):
        CpuRunQueue(plant({})).read()


def test_processes_are_found_by_id_file_and_name(plant: Plant) -> None:
    tree = plant(
        {
            "/proc/5/comm": "other\n",
            "/proc/6/comm": "other\n",
            "/proc/8/comm": "a-very-long-nam\n",
            "/proc/self/comm": "other\n",
            "/run/app.pid": "6\n",
        }
    )
    found = Processes(tree, [5, 404], ["/run/app.pid"], ["a-very-long-name"])
    assert found.members() == [5, 6, 8]


def test_a_name_is_looked_up_again_when_its_process_is_gone(plant: Plant, tmp_path: Path) -> None:
    processes = Processes(plant({"/proc/5/comm": "app\n"}), names=["app"])
    assert processes.members() == [5]
    plant({"/proc/5/comm": "other\n", "/proc/6/comm": "app\n"})
    assert processes.members() == [6]


def test_no_process_at_all_says_what_was_looked_for(plant: Plant) -> None:
    processes = Processes(plant({"/proc/5/comm": "x"}), [404], ["/run/none.pid"], ["app"])
    with pytest.raises(Unavailable) as error:
        processes.members()
    assert str(error.value) == ("no process 404; /run/none.pid: not there; no process named app")
