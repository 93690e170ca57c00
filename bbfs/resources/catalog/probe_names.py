"""Names that programs look for in every directory, whatever it holds. Pure.

Where any name can be a resource (the variables of a template), each of these would be a request to a server that nobody
meant to send: a prompt asks for `.git` in every directory on the way up, a file manager for `.hidden`, a search program
for `.gitignore`. So a name like this is there only if the source itself names it, in its listing or its completions.
One that is wanted all the same can be written encoded (`%2Egit`), which no program does by itself.
"""

import re

_NAMES = frozenset(
    """
    .git .hg .svn .bzr .jj .pijul _darcs CVS .fslckout _FOSSIL_ .sl
    .gitignore .gitattributes .gitmodules .hgignore .ignore .rgignore .fdignore .agignore .dockerignore .ripgreprc
    .editorconfig .envrc .direnv .tool-versions .mise.toml .python-version .node-version .nvmrc .ruby-version
    .terraform .venv .projectile
    .hidden .directory .Trash .trash .thumbnails .xdg-volume-info .autorun autorun.inf autorun.sh .comments
    .DS_Store .localized .Spotlight-V100 .fseventsd .metadata_never_index .VolumeIcon.icns .nomedia
    desktop.ini Desktop.ini Thumbs.db thumbs.db .snapshot .zfs .snapshots .lost+found
    lost+found .updatedb .nobackup CACHEDIR.TAG .rsync-filter .cvsignore .htaccess 4913
    """.split()  # noqa: SIM905 - sixty quoted names read worse
)
_FORMS = re.compile(
    r"\.Trash-[0-9]+|\._.*|\.fuse_hidden[0-9a-f]+|\.nfs[0-9a-f]+|\.#.*|#.*#|\..*\.sw[a-px]|.+~|\.goutputstream-.*|\.~lock\..*#"
)


def is_probe(name: str) -> bool:
    """Whether programs look for this name, or write it, without anybody having asked for it."""
    return name in _NAMES or _FORMS.fullmatch(name) is not None
