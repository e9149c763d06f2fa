# SPDX-License-Identifier: MIT
import settings

print(settings.VALUE)
