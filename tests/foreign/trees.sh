# Make the directory `tree` with everything that a copy may have to keep; "$1" is `root` if the user may make devices.
set -e
umask 022
mkdir -p tree/sub/deep tree/empty
echo one > tree/a
seq 1 60000 > tree/large
: > tree/none
seq 1 900 > tree/sub/b
echo 'a name' > 'tree/a b#%41?'
ln -s a tree/relative
ln -s /etc/hostname tree/absolute
ln -s ../a tree/sub/up
ln -s nowhere tree/dangling
ln -s ../deep tree/sub/deep/directory
ln tree/a tree/hard
ln tree/sub/b tree/sub/deep/hard
chmod 600 tree/sub/b
chmod 755 tree/large
chmod 700 tree/sub/deep
truncate -s 1000000 tree/sparse
printf end >> tree/sparse
setfattr -n user.mine -v value tree/a
mkfifo tree/pipe
[ "$1" != root ] || { setfacl -m u:65534:r tree/large; chown 12:34 tree/none; }
touch -d @1500000000.123456789 tree/a tree/none tree/large tree/empty
touch -h -d @1400000000 tree/relative
