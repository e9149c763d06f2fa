# SPDX-License-Identifier: MIT
set -e
ssh-keygen -q -t ed25519 -f "$LAB_RUN/key"
echo made
