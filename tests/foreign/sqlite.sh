# Build SQLite's test of threads and its tool of keys and values, in its source tree.
set -e
sh ./configure --disable-tcl --disable-readline
make sqlite3.c sqlite3.h
gcc -O1 -I. -Isrc -Itest -o threadtest3 test/threadtest3.c src/test_multiplex.c sqlite3.c -lpthread -ldl -lm
gcc -O1 -I. -o kvtest test/kvtest.c sqlite3.c -lpthread -ldl -lm
