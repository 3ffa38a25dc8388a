"""The paper's closed form, as printed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.optimizer import lemma1

rate = st.floats(1.0, 1e4)


def test_two_servers_by_hand():
    # r = 100, 25, a = 75: (100*5 - 25*10 + 75*10)/(75*15) = 1000/1125 = 8/9.
    assert lemma1(np.array([100.0, 25.0]), 75.0) == pytest.approx([8 / 9, 1 / 9])


@given(r_1=rate, r_2=rate, a=rate)
def test_two_servers_are_the_base_case_of_the_papers_proof(r_1, r_2, a):
    # p* = (r1 sqrt r2 - r2 sqrt r1 + a sqrt r1) / (a (sqrt r1 + sqrt r2)), printed in the proof.
    p = (r_1 * math.sqrt(r_2) - r_2 * math.sqrt(r_1) + a * math.sqrt(r_1)) / (
        a * (math.sqrt(r_1) + math.sqrt(r_2))
    )
    scale = 1.0 + max(r_1, r_2) / a
    assert lemma1(np.array([r_1, r_2]), a) == pytest.approx([p, 1.0 - p], abs=1e-12 * scale)


@given(r=st.lists(rate, min_size=1, max_size=20), a=rate)
def test_shares_sum_to_1_even_where_some_are_negative(r, a):
    found = lemma1(np.array(r), a)
    assert found.sum() == pytest.approx(1.0, abs=1e-11 * (1.0 + sum(r) / a))


def test_equal_servers_share_equally_at_any_load():
    for a in (0.01, 100.0, 299.0):
        assert lemma1(np.full(3, 100.0), a) == pytest.approx([1 / 3] * 3)


def test_low_load_and_unequal_servers_make_a_share_negative():
    # The module's own example: (10*10 ... ) r = 100, 10, a = 20, roots 10 and 3.16228:
    # (10*13.16228 - 3.16228*110 + 20*3.16228)/(20*13.16228) = -152.98/263.25 = -0.581.
    assert lemma1(np.array([100.0, 10.0]), 20.0)[1] == pytest.approx(-0.581, abs=5e-4)
