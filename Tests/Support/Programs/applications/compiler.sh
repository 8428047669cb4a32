#!/bin/bash
# compiler.sh MOUNT SCRATCH: gcc builds a shared library and its user on the mount, and runs the program from there
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
cd "$1"
for i in $(seq 12); do echo "int f$i(int x) { return x + $i; }" >f$i.c; done
{
    echo '#include <stdio.h>'
    for i in $(seq 12); do echo "int f$i(int);"; done
    echo "int main(void) { int x = 0;"
    for i in $(seq 12); do echo "x = f$i(x);"; done
    echo 'printf("%d\n", x); return x != 78; }'
} >main.c
for i in $(seq 12); do gcc -g -O1 -fPIC -c f$i.c; done
ar rc libf.a f*.o
gcc -shared -o libf.so f*.o
gcc -g main.c libf.a -o static
gcc -g main.c -L. -l:libf.so -Wl,-rpath,'$ORIGIN' -o dynamic
[ "$(./static)" = 78 ]
[ "$(./dynamic)" = 78 ]
printf '#!/bin/sh\nexit 7\n' >script && chmod +x script
status=0 && ./script || status=$?
[ $status = 7 ]
# A running program cannot be written to.
cp /bin/sleep nap
./nap 20 &
for _ in $(seq 3000); do [ "$(readlink /proc/$!/exe)" = "$PWD/nap" ] && break; sleep 0.01; done
! { echo x >>nap; } 2>/dev/null
kill $!
wait $! || true
