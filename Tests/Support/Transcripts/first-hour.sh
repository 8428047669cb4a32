# first-hour.sh: the first hour with vaultfs, in an empty directory, without XDG_RUNTIME_DIR. PATH leads to vaultfs.
# TranscriptTests compares the output with first-hour.txt, word for word.
export HOME=$PWD
unset XDG_RUNTIME_DIR
# The files, as FirstHour.md makes them.
(umask 077; echo 'my first passphrase' >pass; echo 'my second passphrase' >new)
mkdir Papers; echo 'some paper' >Papers/a
show() {
    echo "\$ $*"
    "$@" 2>&1
    local code=$?
    [ $code = 0 ] || echo "[exit code $code]"
}
show vaultfs init Vault --passfile pass
show vaultfs mount Vault Private --passfile pass
show vaultfs status
echo '$ echo secret >Private/file'
echo secret >Private/file
show cat Private/file
show vaultfs lock --forget
show cat Private/file
show vaultfs unlock --passfile pass
show cat Private/file
show vaultfs passwd Vault
show vaultfs slot change Vault --passfile pass --new-passfile new
show vaultfs unmount --all
show vaultfs mount Vault Private --passfile pass
show vaultfs import Papers Vault --passfile new
show cp -a Vault Backup
show vaultfs verify Backup --passfile new
