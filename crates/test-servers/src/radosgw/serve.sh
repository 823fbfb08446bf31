#!/bin/bash
# Runs a Ceph object gateway on port $1 of this machine, with a monitor on port $2: one of each server, data in memory,
# nothing but the loopback, one user.
set -eu
# What a run before this one left is of no use: its objects were in memory.
rm -rf /data/mon /data/osd /data/rgw /data/run
mkdir -p /data/mon /data/osd /data/rgw /data/run
read -r fsid </proc/sys/kernel/random/uuid
read -r osd </proc/sys/kernel/random/uuid
cat >/data/ceph.conf <<END
[global]
fsid = $fsid
mon_host = v2:127.0.0.1:$2
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
auth_allow_insecure_global_id_reclaim = true
# Without keys there is nothing to encrypt with.
ms_mon_client_mode = crc
# One object server: one copy, and as few placement groups as there can be, or the gateway's pools are over a limit.
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 10000
rgw_rados_pool_pg_num_min = 1
log_file = /data/\$name.log
run_dir = /data/run
admin_socket = /data/run/\$name.asok
pid_file = /data/run/\$name.pid
crash_dir = /data
log_to_stderr = false
[mon.a]
mon_data = /data/mon
[osd.0]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
osd_data = /data/osd
osd_objectstore = memstore
memstore_device_bytes = 2147483648
[client.rgw]
rgw_frontends = beast endpoint=${3:-127.0.0.1}:$1 tcp_nodelay=1
rgw_data = /data/rgw
END
export CEPH_CONF=/data/ceph.conf

monmaptool --create --clobber --fsid "$fsid" --addv a "[v2:127.0.0.1:$2]" /data/monmap
ceph-mon --mkfs -i a --monmap /data/monmap
ceph-mon -i a -f &
until ceph --connect-timeout 5 mon stat; do sleep 0.2; done

ceph osd new "$osd"
ceph-osd -i 0 --mkfs --osd-uuid "$osd"
ceph-osd -i 0 -f &
until ceph osd stat >/data/stat; [[ "$(</data/stat)" == *"1 up"* ]]; do sleep 0.2; done

radosgw-admin user create --uid test --display-name test --access-key test --secret-key test >/dev/null
radosgw -n client.rgw -f &
# Whichever ends takes the others with it.
wait -n
