"""Maps: MCP servers with tools alone as trees. A map says which calls list, read, write, remove and search.

`options` checks a map, `forms` has its templates, `answers` reads what tools answer, `calls` has the whole map ready
for use, `handler` is the source. `shipped` reads the maps that come with bbfs; `proposals` has one of them, or guesses
one, for a server.
"""
