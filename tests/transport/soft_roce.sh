#!/bin/bash
# A job over UCX's verbs, on a soft RoCE device (rdma_rxe) where the kernel has it and this may make one:
#   soft_roce.sh PARXRUN PARX_DOCTOR
set -u
parxrun=$1 doctor=$2
not_tried() { echo "NOT TRIED: UCX over verbs (soft RoCE), because $1"; exit 77; }
command -v rdma >/dev/null || not_tried "there is no rdma(8) (iproute2)"
[ "$(id -u)" = 0 ] || not_tried "only root can make a device"
card=$(ip -o link show up | awk -F': ' '$2 != "lo" { sub(/@.*/, "", $2); print $2; exit }')
[ -n "$card" ] || not_tried "no network interface is up"
modprobe rdma_rxe 2>/dev/null
rdma link add parx_rxe type rxe netdev "$card" 2>/dev/null || not_tried "this kernel has no rdma_rxe"
trap 'rdma link delete parx_rxe' EXIT
[ -e /dev/infiniband/uverbs0 ] || not_tried "there is no /dev/infiniband here"
for i in 1 2 3; do
  PARX_TRANSPORT=ucx UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=parx_rxe:1 timeout 40 "$parxrun" -n 2 \
    --tag-output=false bash -c 'PARX_HOST_ID=$RANK exec "$0"' "$doctor" || exit 1
done
echo "three jobs over soft RoCE on $card"
