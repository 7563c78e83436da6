"""wait_for(): until something is as it is to be."""
import time


def wait_for(condition, what, seconds=60):
    """Calls `condition` until it is true. Returns its value; fails with `what` after so many seconds."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, what
        time.sleep(0.02)
    return value
