#!/usr/bin/env bash
# A private SLURM cluster of one node for the tests: as root, on loopback, without systemd and cgroups.
#
#   cluster.sh start [none|dbd] [GPUS]   bring it up, installing Debian's packages where they are missing
#   cluster.sh stop                      end its daemons, by their pid files
#
# All state is in $SLURM_TEST_DIR, but for the link /etc/slurm/slurm.conf: Snakemake's job steps drop SLURM_CONF.
set -euo pipefail

D=${SLURM_TEST_DIR:?a folder for the state of the cluster}
LINK=/etc/slurm/slurm.conf
export SLURM_CONF=$D/slurm.conf

packages() {
  local needed=(munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins) missing=() package policy=/usr/sbin/policy-rc.d
  [ "$1" = dbd ] && needed+=(slurmdbd slurm-wlm-mysql-plugin mariadb-server)
  for package in "${needed[@]}"; do
    dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  # Installed, their daemons would start by themselves.
  local ours=0
  [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy && ours=1; }
  local installed=1
  { apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null || installed=0
  [ $ours = 0 ] || rm -f $policy
  [ $installed = 1 ] || { echo "cannot install ${missing[*]}" >&2; exit 2; }
}

within() { # seconds, command...
  local end=$((SECONDS + $1))
  shift
  until timeout 5 "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "not within its time: $*" >&2; tail -n 20 "$D"/*.log >&2; exit 1; }
    sleep 0.2
  done
}

configure() { # accounting, gpus
  local cpus memory gres_types="" gres=""
  cpus=8 # more than there are: jobs that wait for one another would take the tests minutes
  memory=$(awk '/MemTotal/ {printf "%d", $2 / 1024 * 0.9}' /proc/meminfo)
  : >"$D/gres.conf"
  if [ "$2" -gt 0 ]; then
    gres_types="GresTypes=gpu" gres="Gres=gpu:$2"
    for i in $(seq 0 $(($2 - 1))); do : >"$D/gpu$i"; done # an empty file counts as a device
    echo "NodeName=localhost Name=gpu File=$D/gpu[0-$(($2 - 1))]" >"$D/gres.conf"
  fi
  cat >"$SLURM_CONF" <<CONF
ClusterName=highways
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
SrunPortRange=26900-26999
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny,DisableIPv6
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$D/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool
SlurmctldPidFile=$D/slurmctld.pid
SlurmdPidFile=$D/slurmd.pid
SlurmctldLogFile=$D/slurmctld.log
SlurmdLogFile=$D/slurmd.log
PlugStackConfig=/dev/null
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
SlurmdParameters=config_overrides
JobRequeue=1
KillWait=20
MinJobAge=3600
OverTimeLimit=0
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
JobCompType=jobcomp/filetxt
JobCompLoc=$D/jobs.txt
$gres_types
NodeName=localhost NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory $gres State=UNKNOWN
PartitionName=main Nodes=localhost Default=YES MaxTime=04:00:00 State=UP DefMemPerCPU=500
CONF
  if [ "$1" = dbd ]; then
    cat >>"$SLURM_CONF" <<CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=26819
AccountingStoragePass=$D/munge.socket
AccountingStorageEnforce=associations
CONF
    (umask 077 && cat >"$D/slurmdbd.conf") <<CONF
AuthType=auth/munge
AuthInfo=socket=$D/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=26819
SlurmUser=root
PidFile=$D/slurmdbd.pid
LogFile=$D/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=23306
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
CONF
  fi
}

database() {
  # As root too: another user could not reach a folder of ours.
  mariadb-install-db --no-defaults --user=root --datadir="$D/mysql" --auth-root-authentication-method=socket \
    --skip-test-db >"$D/install.log" 2>&1
  mariadbd --no-defaults --user=root --datadir="$D/mysql" --socket="$D/mariadb.socket" --pid-file="$D/mariadbd.pid" \
    --bind-address=127.0.0.1 --port=23306 --innodb-buffer-pool-size=64M </dev/null >"$D/mariadb.log" 2>&1 &
  disown
  within 60 mariadb --no-defaults -S "$D/mariadb.socket" -e 'select 1'
  mariadb --no-defaults -S "$D/mariadb.socket" -e "create database slurm_acct_db;
    create user 'slurm'@'127.0.0.1' identified by 'slurm'; create user 'slurm'@'localhost' identified by 'slurm';
    grant all on slurm_acct_db.* to 'slurm'@'127.0.0.1'; grant all on slurm_acct_db.* to 'slurm'@'localhost';"
  # slurmdbd reads its configuration beside that of SLURM.
  slurmdbd
  within 60 sacctmgr -n -i list cluster
  sacctmgr -i -Q add cluster highways >/dev/null
  sacctmgr -i -Q add account tests cluster=highways >/dev/null
  sacctmgr -i -Q add user root account=tests cluster=highways >/dev/null
  sacctmgr -i -Q modify user root set defaultaccount=tests >/dev/null
}

start() {
  [ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 2; }
  [ ! -e $LINK ] || { echo "$LINK is there: another cluster's" >&2; exit 2; }
  case "$(getent hosts "$(hostname)" | awk '{print $1; exit}')" in
    127.*) ;;
    *) echo "the host name must resolve to 127.x.x.x" >&2; exit 2 ;;
  esac
  packages "$1"
  mkdir -p "$D"/{state,spool} "$(dirname $LINK)"
  chmod 755 "$D"
  configure "$1" "$2"
  ln -s "$SLURM_CONF" $LINK
  (umask 077 && dd if=/dev/urandom of="$D/munge.key" bs=128 count=1 status=none)
  munged --key-file="$D/munge.key" --socket="$D/munge.socket" --pid-file="$D/munged.pid" \
    --log-file="$D/munged.log" --seed-file="$D/munge.seed" --force
  within 20 sh -c "munge -n -S $D/munge.socket | unmunge -S $D/munge.socket"
  [ "$1" = dbd ] && database
  slurmctld
  within 30 sh -c 'scontrol ping | grep -q "is UP"'
  slurmd -N localhost
  within 30 sh -c 'sinfo -h -o %T | grep -q idle || { scontrol update nodename=localhost state=resume; false; }'
}

stop() {
  local daemon pid
  for daemon in slurmd slurmctld slurmdbd mariadbd munged; do
    [ -s "$D/$daemon.pid" ] || continue
    pid=$(cat "$D/$daemon.pid")
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$daemon" ] || continue
    kill "$pid"
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  done
  [ "$(readlink $LINK 2>/dev/null)" = "$SLURM_CONF" ] && rm -f $LINK
  return 0
}

case "${1:-}" in
  start) start "${2:-none}" "${3:-0}" ;;
  stop) stop ;;
  *) sed -n '2,8p' "$0" >&2; exit 2 ;;
esac
