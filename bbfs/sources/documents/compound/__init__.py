"""Documents in compound files ([MS-CFB]): Word, Excel and PowerPoint before 2007, and mails of Outlook.

A compound file is a small file system of named streams. olefile reads it, within the bounds of the worker process.
"""

MAGIC = b"\xd0\xcf\x11\xe0"
"""The first bytes of a compound file."""
