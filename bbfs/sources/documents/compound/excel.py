"""Excel files before 2007: the values of each sheet as a table."""

import os
from collections.abc import Iterator
from typing import Literal

import xlrd
from xlrd import xldate
from xlrd.biffh import XLRDError
from xlrd.book import Book
from xlrd.sheet import Cell

from bbfs.model.errors import ProtocolViolation
from bbfs.sources.documents.compound import MAGIC
from bbfs.sources.documents.compound.streams import Streams
from bbfs.sources.documents.tables import table

# No value needs the names of ranges, and xlrd fails on some files where it evaluates them.
Book.names_epilogue = lambda self: None


def read(document: bytes) -> Iterator[str]:
    """Yield each sheet below a heading with its name, without empty rows."""
    book = document  # the oldest files are what others have in a stream
    if document.startswith(MAGIC):
        streams = Streams(document)
        book = streams.read("Workbook") or streams.read("Book")
    with open(os.devnull, "w") as log:
        try:
            opened = xlrd.open_workbook(file_contents=book, logfile=log, ragged_rows=True)
        except XLRDError as error:
            raise ProtocolViolation("is encrypted" if "encrypted" in str(error) else "is no Excel file") from error
    datemode: Literal[0, 1] = 1 if opened.datemode else 0
    for sheet in opened.sheets():
        yield f"## {sheet.name}\n\n"
        yield from table([_value(cell, datemode) for cell in sheet.row(number)] for number in range(sheet.nrows))


def _value(cell: Cell, datemode: Literal[0, 1]) -> object:
    """Return the value of a cell as openpyxl gives those of newer files."""
    value = cell.value
    if not isinstance(value, int | float):
        return value or None
    if cell.ctype == xlrd.XL_CELL_NUMBER:
        return int(value) if float(value).is_integer() else value
    if cell.ctype == xlrd.XL_CELL_BOOLEAN:
        return bool(value)
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return xlrd.error_text_from_code.get(int(value), "#ERROR")
    try:
        moment = xldate.xldate_as_datetime(value, datemode)
    except (ValueError, OverflowError, xldate.XLDateError):
        return value
    return moment.time() if value < 1 else moment
