"""What the daemon lets pyfuse3 say."""

import errno
import logging
import os

import pytest

from bbfs.fuse.daemon import _Adapter


def said(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("pyfuse3", logging.ERROR, __file__, 1, text, values, None)


@pytest.mark.parametrize(("number", "is_said"), [(errno.ENOENT, False), (errno.EINVAL, True)])
def test_an_answer_that_nobody_waits_for_is_no_error(number: int, is_said: bool) -> None:
    record = said("fuse_release(): fuse_reply_* failed with %s", os.strerror(number))
    assert _Adapter().needed(record) is is_said
