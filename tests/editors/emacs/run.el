;; Fills a body by eglot's code action in a batch Emacs, undoes it, and prints both texts. The server is TEST_SERVER's, a JSON list.
(require 'package)
(package-initialize)
(require 'eglot)
(require 'json)
(setq eglot-confirm-server-initiated-edits nil
      last-nonmenu-event ?x) ; a choice is asked for in the minibuffer, not in a menu
(add-to-list 'eglot-server-programs (cons 'python-mode (append (json-read-from-string (getenv "TEST_SERVER")) nil)))

(defun wait-for (found)
  (let ((end (+ (float-time) 60)))
    (while (not (or (funcall found) (> (float-time) end)))
      (accept-process-output nil 0.05))))

(find-file (car command-line-args-left))
(apply #'eglot--connect (eglot--guess-contact))
(wait-for #'eglot-managed-p)
(search-forward "return")
(let ((before (buffer-string)))
  (cl-letf (((symbol-function 'completing-read) (lambda (_ offered &rest _) (car (all-completions "Fill function body" offered)))))
    (eglot-code-actions (point) (point) nil t))
  (wait-for (lambda () (not (equal (buffer-string) before)))))
(princ (buffer-string))
(undo-boundary)
(setq last-command nil)
(undo)
(princ (buffer-string))
(kill-emacs)
