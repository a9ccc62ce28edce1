"""Python's numbers as the library's: ctypes cuts what does not fit without a word, here it is refused."""

import math
import operator

from .errors import BadArgument

MOST_SECONDS = 10 * 365 * 86400


def whole(name, value, most, least=0):
    try:
        number = operator.index(value)
    except TypeError:
        raise BadArgument(f"{name} is {value!r}, and must be a whole number") from None
    if not least <= number <= most:
        raise BadArgument(f"{name} is {number}, and must be in {least}..{most}")
    return number


def milliseconds(name, seconds, most=MOST_SECONDS * 1000):
    """Rounded up, so that a short time is not none."""
    try:
        value = float(seconds)
    except (TypeError, ValueError):
        raise BadArgument(f"{name} is {seconds!r}, and must be a number of seconds") from None
    if not 0 <= value <= most / 1000:
        raise BadArgument(f"{name} is {value} seconds, and must be in 0..{most // 1000}")
    return math.ceil(value * 1000)
