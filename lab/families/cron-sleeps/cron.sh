# SPDX-License-Identifier: MIT
: > "$LAB_RUN/none"
mount --bind "$LAB_RUN/none" /etc/crontab 2> /dev/null
for folder in /etc/cron.d /var/spool/cron /run; do
    mount -t tmpfs none $folder || exit 3
done
mkdir /var/spool/cron/crontabs
(
    sleep 0.5
    echo ready >> "$LAB_TRUTH"
) &
exec cron -f
