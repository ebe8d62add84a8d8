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

mount -t proc proc "$root/proc"
mount --bind "$PLACE/boot_id" "$root/proc/sys/kernel/random/boot_id"
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty fuse; do
  [ -e "/dev/$device" ] || continue
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm" "$root/run/sshd" "$root/run/proc"
# The kernel lets rootless containers mount their /proc only where there is one with nothing mounted over it.
mount -t proc proc "$root/run/proc"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"

# The laptop's own files are not on this machine.
for folder in $HIDE; do
  [ -d "$root$folder" ] || continue # below /tmp, say, which is another one here
  mount -t tmpfs -o mode=755 tmpfs "$root$folder"
done
mkdir -p "$root$USER_HOME"
mount --bind "$USER_HOME" "$root$USER_HOME"
cp -R "$ETC/." "$root/etc/"
chmod 600 "$root"/etc/ssh/ssh_host_*_key "$root/etc/shadow"
rm -f "$root/etc/ssh/sshd_config.d"/*
for program in $REMOVE; do
  rm -f "$root$program"
done
if [ -n "$PYTHON" ]; then
  chmod a+rx "$root/root"
  ln -sf "$PYTHON" "$root/usr/local/bin/python3"
fi
if [ -n "$ENGINE" ]; then
  # The folder, not the socket: an engine that starts anew makes a new one.
  mkdir "$root/run/engine"
  mount --bind "$ENGINE" "$root/run/engine"
  ln -s engine/docker.sock "$root/run/docker.sock"
fi
if [ -d "$PLACE/docker" ]; then
  mkdir -p "$root/var/lib/docker"
  mount --bind "$PLACE/docker" "$root/var/lib/docker"
fi
hostname "$NAME"

mkdir -p "$root/mnt"
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
