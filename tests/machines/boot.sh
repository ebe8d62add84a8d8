#!/bin/sh
# The first process of a machine, already in namespaces of its own. Its file system is this computer's, seen through an
# overlay: whatever is changed inside stays inside. The home alone is a real folder at the same path, since an engine
# outside mounts from there. Given: PLACE ETC USER_HOME ENGINE HIDE REMOVE PYTHON DOCKERD NAME.
set -eu
tree=$PLACE/tree
mount -t tmpfs -o mode=755 tmpfs "$tree"
mkdir "$tree/upper" "$tree/work" "$tree/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$tree/upper,workdir=$tree/work" "$tree/root"
root=$tree/root

mount -t tmpfs -o mode=755 tmpfs "$root/dev"
# All others in one process, in this order: a start of `mount` for each would be most of the work of a boot.
mounts=$PLACE/mounts
{
  echo "proc $root/proc proc defaults"
  echo "$PLACE/boot_id $root/proc/sys/kernel/random/boot_id none bind"
  echo "sysfs $root/sys sysfs defaults"
  echo "/sys/fs/cgroup $root/sys/fs/cgroup none rbind"
  echo "tmpfs $root/tmp tmpfs mode=1777"
  echo "tmpfs $root/run tmpfs mode=755"
  for device in null zero full random urandom tty fuse; do
    [ -e "/dev/$device" ] || continue
    : >"$root/dev/$device"
    echo "/dev/$device $root/dev/$device none bind"
  done
  # The kernel lets rootless containers mount their /proc only where there is one with nothing mounted over it.
  echo "proc $root/run/proc proc x-mount.mkdir"
  echo "devpts $root/dev/pts devpts x-mount.mkdir,newinstance,ptmxmode=0666,mode=620,gid=5"
  echo "tmpfs $root/dev/shm tmpfs x-mount.mkdir,mode=1777"
  # The laptop's own files are not on this machine.
  for folder in $HIDE; do
    case $folder in /tmp/* | /run/*) continue ;; esac # which are others here
    echo "tmpfs $root$folder tmpfs mode=755"
  done
  echo "$USER_HOME $root$USER_HOME none bind,x-mount.mkdir"
  if [ -n "$ENGINE" ]; then
    # The folder, not the socket: an engine that starts anew makes a new one.
    echo "$ENGINE $root/run/engine none bind,x-mount.mkdir"
  fi
  if [ -d "$PLACE/docker" ]; then
    echo "$PLACE/docker $root/var/lib/docker none bind,x-mount.mkdir"
  fi
} >"$mounts"
mount --all --fstab "$mounts"
mkdir "$root/run/sshd"
ln -s pts/ptmx "$root/dev/ptmx"
cp -P /dev/fd /dev/stdin /dev/stdout /dev/stderr "$root/dev/"
cp -R "$ETC/." "$root/etc/"
chmod 600 "$root"/etc/ssh/ssh_host_*_key "$root/etc/shadow"
rm -f "$root/etc/ssh/sshd_config.d"/*
for program in $REMOVE; do
  set -- "$@" "$root$program"
done
rm -f "$@"
if [ -n "$PYTHON" ]; then
  chmod a+rx "$root/root"
  ln -sf "$PYTHON" "$root/usr/local/bin/python3"
fi
if [ -n "$ENGINE" ]; then
  ln -s engine/docker.sock "$root/run/docker.sock"
fi
hostname "$NAME"

[ -d "$root/mnt" ] || mkdir "$root/mnt"
cd "$root"
pivot_root . mnt
exec chroot . /bin/sh -c '
  umount -l /mnt
  mount --make-rshared /   # as systemd leaves it
  cd /
  read -r network   # the first line comes when the wires are there
  if [ -n "$DOCKERD" ]; then
    $DOCKERD >/var/log/docker.log 2>&1 </dev/null &
  fi
  unset DOCKERD PLACE ETC USER_HOME ENGINE HIDE REMOVE PYTHON NAME
  /usr/sbin/sshd -E /var/log/sshd.log && echo up
  exec </dev/null >/dev/null 2>&1
  exec tini -- sleep infinity'
