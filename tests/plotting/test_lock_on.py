"""When heads lock on: every hit rate has its colour, in its row and its column."""

import numpy as np
import pytest
from matplotlib import colormaps

from attention_lab.plotting.lock_on import draw_lock_on

RATES = np.array([[[0.0, 0.2], [0.4, 0.6]], [[0.1, 0.9], [1.0, 0.3]], [[0.5, 0.7], [0.8, 0.05]]])


def test_every_hit_rate_has_its_colour_in_a_row_of_its_head_and_a_column_of_its_step():
    picture = np.asarray(draw_lock_on([10, 20, 30], [0.0, 0.5, 1.0], RATES)).astype(int)
    height, width = picture.shape[:2]
    left, right = round(0.135 * width), round(0.83 * width)
    bottom = height - 75
    for column in range(3):
        x = round(left + (column + 0.5) * (right - left) / 3)
        for row, rate in enumerate(RATES[column].ravel()):
            y = round(bottom - (4 - row - 0.5) * 30)
            expected = np.array(colormaps["Blues"](rate)[:3]) * 255
            assert abs(picture[y, x] - expected).max() <= 2, (column, row)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 1), (7, 12, 16)])
def test_any_number_of_heads_and_validations_is_drawn(shape):
    steps = [50 * (number + 1) for number in range(shape[0])]
    picture = draw_lock_on(steps, [0.5] * shape[0], np.full(shape, 0.5))
    assert picture.width == 640
    assert picture.height < 640 * 10
