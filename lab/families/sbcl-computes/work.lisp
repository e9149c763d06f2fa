; SPDX-License-Identifier: MIT
(with-open-file (file (sb-ext:posix-getenv "LAB_TRUTH")
                      :direction :output :if-exists :append :if-does-not-exist :create)
  (format file "ready~%"))
(defun work ()
  (let ((cells (make-array 40000 :element-type 'double-float :initial-element 0d0)))
    (loop for round fixnum from 0 do
      (dotimes (cell 40000)
        (setf (aref cells cell)
              (+ 1d0 (* 0.5d0 (aref cells (mod (* cell 7) 40000)))))))))
(compile 'work)
(work)
