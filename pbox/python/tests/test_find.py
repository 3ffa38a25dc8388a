"""Algorithm 2 on small programs, each with one thing to see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dial_pbox.find.command import main
from dial_pbox.find.places import Place, places
from dial_pbox.find.score import score
from dial_pbox.find.source import Program, SourceError, commands
from dial_pbox.find.waiting import WAIT_FUNCTIONS, wrappers

HEAD = """
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>
static int n_active;
static const int limit = 4;
static __thread int mine;
struct pool { int free; pthread_cond_t changed; pthread_mutex_t mutex; };
extern struct pool the_pool;
"""


def parsed(tmp_path: Path, text: str) -> Program:
    file = tmp_path / "program.c"
    file.write_text(HEAD + text)
    program = Program()
    program.parse(file, [])
    assert program.complaints == []
    return program


def found(tmp_path: Path, text: str) -> list[Place]:
    return places(parsed(tmp_path, text), WAIT_FUNCTIONS)


def test_a_wait_for_a_member_behind_a_pointer_is_a_place(tmp_path: Path) -> None:
    (place,) = found(
        tmp_path,
        """
        void get(struct pool *p) {
          while (p->free == 0)
            pthread_cond_wait(&p->changed, &p->mutex);
          p->free--;
        }
        void give(struct pool *p) { p->free++; pthread_cond_signal(&p->changed); }
        """,
    )
    assert (place.function, place.callee) == ("get", "pthread_cond_wait")
    assert place.shared == ("p->free",)
    assert place.first_line == place.line - 1
    assert place.last_line == place.line
    (release,) = place.releases
    assert release.endswith("(give)")


def test_an_if_that_leaves_an_endless_loop_is_its_condition(tmp_path: Path) -> None:
    # The paper's Figure 9 (srv0conc.cc) is of this form.
    (place,) = found(
        tmp_path,
        """
        void enter(void) {
          for (;;) {
            if (n_active < limit) { n_active++; return; }
            usleep(10);
          }
        }
        """,
    )
    assert place.shared == ("n_active",)


def test_wrappers_of_wrappers_are_followed_to_the_standard_function(tmp_path: Path) -> None:
    (place,) = found(
        tmp_path,
        """
        static void pause_us(int us) { usleep(us); }
        static void back_off(int n) { if (n > 3) pause_us(n); else sched_yield(); }
        void enter(void) { while (n_active >= limit) back_off(n_active); }
        """,
    )
    assert (place.callee, place.function) == ("back_off", "enter")
    assert place.waits_like in ("usleep", "sched_yield")


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        ("usleep(1);", True),
        ("if (x) usleep(1); else sched_yield();", True),
        ("if (x) usleep(1);", False),
        ("if (x) return; usleep(1);", False),
        ("if (x) exit(1); usleep(1);", True),
        ("if (x) { usleep(1); return; } sched_yield();", True),
        ("while (x) usleep(1);", False),
        ("do usleep(1); while (x);", True),
        ("for (;;) { usleep(1); if (x) break; }", True),
        ("for (;;) { if (x) break; usleep(1); }", False),
        ("for (; x; ) usleep(1);", False),
        ("switch (x) { case 1: usleep(1); break; default: usleep(2); }", False),
        ("x && usleep(1);", False),
        ("usleep(1) && x;", True),
        ("x ? usleep(1) : sleep(1);", True),
        ("if (usleep(1)) x = 2;", True),
        ("if (x) goto end; usleep(1); end: x = 1;", False),
        ("x = 1;", False),
    ],
)
def test_a_wrapper_waits_on_every_path_from_entry_to_end(
    tmp_path: Path, body: str, waits: bool
) -> None:
    program = parsed(tmp_path, f"void f(int x) {{ {body} }}")
    assert bool(wrappers(program, WAIT_FUNCTIONS)) is waits


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("void f(void) { int i; for (i = 0; i < 9; i++) usleep(1); }", "a local"),
        ("void f(int n) { while (n--) usleep(1); }", "a parameter"),
        ("void f(void) { while (mine) usleep(1); }", "of one thread"),
        ("void f(void) { while (limit) usleep(1); }", "a constant"),
        ("void f(void) { if (n_active) usleep(1); }", "no loop"),
        ("void f(void) { while (n_active) n_active--; }", "no wait"),
        ("void f(void) { struct pool p; p.free = 0; while (p.free) usleep(1); }", "own structure"),
    ],
)
def test_what_no_other_activity_can_change_is_no_place(tmp_path: Path, text: str, why: str) -> None:
    assert found(tmp_path, text) == [], why


def test_a_condition_that_a_function_answers_reads_what_the_function_reads(
    tmp_path: Path,
) -> None:
    (place,) = found(
        tmp_path,
        """
        static int full(void) { return n_active >= limit; }
        void enter(void) { while (full()) usleep(1); }
        """,
    )
    assert place.shared == ("full(): n_active",)


def test_a_local_that_is_set_from_shared_state_in_the_loop_counts(tmp_path: Path) -> None:
    (place,) = found(
        tmp_path,
        "void f(struct pool *p) { int n; do { n = p->free; usleep(1); } while (n == 0); }",
    )
    assert place.shared == ("p->free",)


def test_a_local_whose_address_is_in_a_queue_is_everybodys(tmp_path: Path) -> None:
    (place,) = found(
        tmp_path,
        """
        struct request { int done; } *queue;
        void send(struct pool *p) {
          struct request mine = {0};
          queue = &mine;
          while (!mine.done) pthread_cond_wait(&p->changed, &p->mutex);
        }
        """,
    )
    assert place.shared == ("mine",)


def test_the_events_that_are_there_are_held_against_what_is_found(tmp_path: Path) -> None:
    program = parsed(
        tmp_path,
        """
        enum e { PBOX_PREPARE, PBOX_ENTER };
        int update_pbox(unsigned long key, enum e event);
        void marked(void) {
          update_pbox(1, PBOX_PREPARE);
          while (n_active) usleep(1);
          update_pbox(1, PBOX_ENTER);
        }
        void missed(int fd) {
          char c;
          update_pbox(2, PBOX_PREPARE);
          while (read(fd, &c, 1) == 0) { }
          update_pbox(2, PBOX_ENTER);
        }
        void unmarked(void) { while (n_active) sched_yield(); }
        """,
    )
    result = score(program, places(program, WAIT_FUNCTIONS))
    assert [where.rpartition(" ")[2] for where in result.hits] == ["(marked)"]
    assert [where.rpartition(" ")[2] for where in result.misses] == ["(missed)"]
    assert [where.rpartition(" ")[2] for where in result.unmarked] == ["(unmarked)"]


def test_the_command_prints_places_and_its_json_has_the_same(tmp_path: Path, capsys) -> None:
    file = tmp_path / "a.c"
    file.write_text(HEAD + "void f(void) { while (n_active) usleep(1); }")
    assert main([str(file)]) == 0
    assert (
        "f() waits in usleep()\n  for n_active\n  PREPARE before line 11" in capsys.readouterr().out
    )
    assert main([str(file), "--json", "--score"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["places"][0]["shared"] == ["n_active"]
    assert len(document["score"]["unmarked"]) == 1


def test_a_further_waiting_function_can_be_named(tmp_path: Path, capsys) -> None:
    file = tmp_path / "a.c"
    file.write_text(HEAD + "void my_wait(void); void f(void) { while (n_active) my_wait(); }")
    assert main([str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert main([str(file), "--wait", "my_wait"]) == 0
    assert "my_wait" in capsys.readouterr().out


def test_a_compilation_database_gives_files_and_what_changes_their_meaning(tmp_path: Path) -> None:
    database = tmp_path / "compile_commands.json"
    entry = {"directory": str(tmp_path), "file": "a.c"}
    database.write_text(
        json.dumps(
            [
                entry | {"command": "cc -Iinclude -DX=1 -O2 -fno-plt -std=c11 -c a.c -o a.o"},
                entry | {"arguments": ["cc", "-I", "/usr/include/x", "-c", "a.c"]},
            ]
        )
    )
    first, second = commands(database)
    assert first == (tmp_path / "a.c", [f"-I{tmp_path / 'include'}", "-DX=1", "-std=c11"])
    assert second == (tmp_path / "a.c", ["-I/usr/include/x"])


@pytest.mark.parametrize("text", ["", "[1]", "{}", '[{"directory": "/x"}]'])
def test_what_is_no_compilation_database_is_refused_by_name(tmp_path: Path, text: str) -> None:
    database = tmp_path / "compile_commands.json"
    database.write_text(text)
    with pytest.raises(SourceError, match="not a compilation database"):
        commands(database)


def test_bad_usage_exits_2_and_says_what(tmp_path: Path, capsys) -> None:
    assert main([]) == 2
    assert "no file" in capsys.readouterr().err
    assert main([str(tmp_path / "nowhere.c")]) == 2
    assert "nowhere.c: not there" in capsys.readouterr().err


def test_what_the_compiler_cannot_understand_is_told(tmp_path: Path, capsys) -> None:
    file = tmp_path / "a.c"
    file.write_text("#include <no_such_header.h>\nint x;\n")
    assert main([str(file)]) == 0
    assert "no_such_header.h" in capsys.readouterr().err
