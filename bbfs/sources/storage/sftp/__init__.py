"""SFTP (draft-ietf-secsh-filexfer-02) and the settings of OpenSSH."""
