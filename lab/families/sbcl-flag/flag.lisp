; SPDX-License-Identifier: MIT
(defun truth (line)
  (with-open-file (file (sb-ext:posix-getenv "LAB_TRUTH")
                        :direction :output :if-exists :append :if-does-not-exist :create)
    (write-line line file)))
(defvar *cell* (sb-alien:make-alien sb-alien:unsigned-long 8))
(setf (sb-alien:deref *cell* 0) 0)
(defun spin (cell)
  (declare (type (sb-alien:alien (* sb-alien:unsigned-long)) cell)
           (optimize speed))
  (loop while (zerop (sb-alien:deref cell 0))))
(compile 'spin)
(sb-thread:make-thread
 (lambda () (sleep 100000) (setf (sb-alien:deref *cell* 0) 1)))
(sleep 0.3)
(truth (format nil "role waiter ~d ~d" (sb-unix:unix-getpid)
               (sb-alien:alien-funcall
                (sb-alien:extern-alien "syscall" (function sb-alien:long sb-alien:long)) 186)))
(truth (format nil "word flag 0x~x 8"
               (sb-sys:sap-int (sb-alien:alien-sap *cell*))))
(truth "ready")
(spin *cell*)
(sleep 5)
