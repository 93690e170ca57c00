"""What the daemon lets pyfuse3 say."""

import errno
import logging
import os

import pytest

from bbfs.daemon import _needed


@pytest.mark.parametrize(("number", "said"), [(errno.ENOENT, False), (errno.EINVAL, True)])
def test_an_answer_that_nobody_waits_for_is_no_error(number: int, said: bool) -> None:
    text = "fuse_release(): fuse_reply_* failed with %s"
    record = logging.LogRecord("pyfuse3", logging.ERROR, __file__, 1, text, (os.strerror(number),), None)
    assert _needed(record) is said
