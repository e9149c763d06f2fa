# SPDX-License-Identifier: MIT
import io
import zipfile

import zipp
from lab_truth import ready, role

data = io.BytesIO()
with zipfile.ZipFile(data, "w") as archive:
    archive.writestr("//a/b", b"")
    archive.writestr("a/b", b"x")
data.seek(0)
role("waiter")
ready()
print([path.name for path in zipp.Path(zipfile.ZipFile(data)).iterdir()])
