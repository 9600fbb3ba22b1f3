{{/*
Checks of the values before anything is installed. All problems are reported at once, each with what to do. Types and
ranges are checked by the schema; these checks are for required values and for combinations of values.
*/}}
{{- define "photofinish.checks" -}}
{{- $problems := concat
      (include "photofinish.checkBackends" . | fromJsonArray)
      (include "photofinish.checkScaling" . | fromJsonArray)
      (include "photofinish.checkGpu" . | fromJsonArray)
      (include "photofinish.checkSettings" . | fromJsonArray)
      (include "photofinish.checkPods" . | fromJsonArray) -}}
{{- if $problems -}}
{{- fail (printf "\n\nThe chart cannot be used like this:\n- %s\n" (join "\n- " $problems)) -}}
{{- end -}}
{{- end -}}

{{- define "photofinish.checkBackends" -}}
{{- $problems := list -}}
{{- $storage := .Values.storage -}}
{{- if not .Values.settings.ENVIRONMENT -}}
{{- $problems = append $problems "settings.ENVIRONMENT is missing: say production (live keys) or sandbox (test keys)." -}}
{{- end -}}
{{- if not .Values.database.existingSecret -}}
{{- $problems = append $problems "database.existingSecret is missing: name the Secret that contains the Postgres URL under the key database.key." -}}
{{- end -}}
{{- if not .Values.queue.existingSecret -}}
{{- $problems = append $problems "queue.existingSecret is missing: name the Secret that contains the NATS URL under the key queue.key." -}}
{{- end -}}
{{- $given := false -}}
{{- range .Values.extraEnv }}{{ if eq .name "PHOTOFINISH_SECRET_KEY" }}{{ $given = true }}{{ end }}{{ end -}}
{{- if not (or .Values.secretKey.existingSecret $given) -}}
{{- $problems = append $problems "secretKey.existingSecret is missing: name the Secret that contains 32 random bytes in base64 under the key secretKey.key. Webhooks, galleries and erasures need them, and without them replicas do not know each other's cursors." -}}
{{- end -}}
{{- if not $storage.url -}}
{{- $problems = append $problems "storage.url is missing: say where the photos are stored, as s3://BUCKET/PREFIX." -}}
{{- else if hasPrefix "file:" $storage.url -}}
{{- $problems = append $problems "storage.url begins with file: but pods do not share a disk; use s3://BUCKET/PREFIX." -}}
{{- end -}}
{{- if and $storage.workloadIdentity $storage.existingSecret -}}
{{- $problems = append $problems "storage.existingSecret and storage.workloadIdentity are both set: use the access key or the role of the service account, not both." -}}
{{- else if not (or $storage.workloadIdentity $storage.existingSecret) -}}
{{- $problems = append $problems "storage.existingSecret is missing: name the Secret with the S3 access key, or set storage.workloadIdentity where the service account has a role." -}}
{{- end -}}
{{- if and (hasPrefix "http://" $storage.endpoint) (not $storage.allowHttp) -}}
{{- $problems = append $problems "storage.endpoint begins with http:// but storage.allowHttp is false: use https, or allow it." -}}
{{- end -}}
{{- if and (regexMatch "^(https?://([^./:]+|[^/:]*\\.(svc|cluster\\.local))|http://[^./:]+\\.[^./:]+)([:/]|$)" $storage.endpoint) (not $storage.publicEndpoint) -}}
{{- $problems = append $problems "storage.endpoint is a name inside the cluster and storage.publicEndpoint is missing: say where partners reach the S3 server, since they upload to it." -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "photofinish.checkScaling" -}}
{{- $problems := list -}}
{{- $worker := .Values.worker -}}
{{- if and $worker.keda.enabled $worker.hpa.enabled -}}
{{- $problems = append $problems "worker.keda.enabled and worker.hpa.enabled are both true: two autoscalers would scale the same workers; choose one." -}}
{{- end -}}
{{- if and $worker.keda.enabled (not .Values.queue.monitoringEndpoint) -}}
{{- $problems = append $problems "worker.keda.enabled is true but queue.monitoringEndpoint is missing: say where KEDA reads the lag from NATS, as HOST:8222." -}}
{{- end -}}
{{- range $name, $scaler := dict "worker.keda" $worker.keda "worker.hpa" $worker.hpa "api.hpa" .Values.api.hpa -}}
{{- if and $scaler.enabled (gt (int $scaler.minReplicas) (int $scaler.maxReplicas)) -}}
{{- $problems = append $problems (printf "%s.minReplicas (%d) is above %s.maxReplicas (%d)." $name (int $scaler.minReplicas) $name (int $scaler.maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- $surge := $worker.rollingUpdate -}}
{{- if and (has (toString $surge.maxSurge) (list "0" "0%")) (has (toString $surge.maxUnavailable) (list "0" "0%")) -}}
{{- $problems = append $problems "worker.rollingUpdate.maxSurge and maxUnavailable are both 0: no new version could ever start." -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "photofinish.checkGpu" -}}
{{- $problems := list -}}
{{- $worker := .Values.worker -}}
{{- if $worker.gpu.enabled -}}
{{- if or (not $worker.gpu.resource) (lt (int $worker.gpu.count) 1) -}}
{{- $problems = append $problems "worker.gpu.enabled is true but worker.gpu.resource or worker.gpu.count is missing: say which resource a worker needs and how many of it, such as 1 of nvidia.com/gpu." -}}
{{- end -}}
{{- if not (or $worker.image.repository $worker.image.tag $worker.image.digest) -}}
{{- $problems = append $problems "worker.gpu.enabled is true but worker.image is that of the API: name the image that was built from Dockerfile.cuda or Dockerfile.wgpu." -}}
{{- end -}}
{{- if and $worker.hpa.enabled (not $worker.hpa.metrics) -}}
{{- $problems = append $problems "worker.hpa.enabled is true on GPUs, whose work the CPU use does not show: give worker.hpa.metrics, or use worker.keda." -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "photofinish.checkSettings" -}}
{{- $problems := list -}}
{{- $settings := .Values.settings -}}
{{- /* As the service does: an upload or a selfie in progress, a lease and an hour for clocks that differ. */ -}}
{{- $longest := max (int64 (default 900 $settings.UPLOAD_SECONDS)) (int64 (default 3600 $settings.PROBE_SECONDS)) -}}
{{- $needed := div (add $longest (int64 (default 60 $settings.LEASE_SECONDS)) 7199) 3600 -}}
{{- $hours := int64 (default 48 $settings.SWEEP_HOURS) -}}
{{- if lt $hours $needed -}}
{{- $problems = append $problems (printf "settings.SWEEP_HOURS is %d but must be at least %d: longer than an upload URL or a selfie and a lease last." $hours $needed) -}}
{{- end -}}
{{- /* Those without a place in `settings`, and PUBLIC_URL, which may come from a ConfigMap. */ -}}
{{- $elsewhere := list "PUBLIC_URL" "SECRET_KEY" "SECRET_KEY_OLD" "QUEUE_CREDENTIALS" "CONSOLE_DIR" "MODELS" "MODELS_DIR" "ONNXRUNTIME"
      "DATABASE_URL" "QUEUE_URL" "QUEUE_STREAM" "STORAGE_URL" "STORAGE_PUBLIC_ENDPOINT" "DATA_DIR" "DEVICE" "LISTEN" "ADMIN_LISTEN" "CONSOLE_LISTEN" -}}
{{- /* `valueFrom` has no place in `settings`: refused only where the chart needs the value. */ -}}
{{- $needed := list "CONSOLE_URL" "DRAIN_SECONDS" "ENVIRONMENT" "LEASE_SECONDS" "PROBE_SECONDS" "PROXIES" "SWEEP_HOURS" "UPLOAD_SECONDS" -}}
{{- range .Values.extraEnv -}}
{{- $setting := trimPrefix "PHOTOFINISH_" .name -}}
{{- $is_plain := or (hasKey . "value") (has $setting $needed) -}}
{{- if and (ne $setting .name) $is_plain (not (has $setting $elsewhere)) -}}
{{- $problems = append $problems (printf "extraEnv gives %s: use settings.%s, which the chart checks and follows." .name $setting) -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}

{{- define "photofinish.checkPods" -}}
{{- $problems := list -}}
{{- $api := .Values.api.terminationGracePeriodSeconds -}}
{{- $needed := int (include "photofinish.apiDrainSeconds" .) -}}
{{- if and $api (lt (int $api) $needed) -}}
{{- $problems = append $problems (printf "api.terminationGracePeriodSeconds is %d but a stop may take %d seconds: requests in progress would be interrupted." (int $api) $needed) -}}
{{- end -}}
{{- $worker := .Values.worker.terminationGracePeriodSeconds -}}
{{- $needed = int (include "photofinish.workerDrainSeconds" .) -}}
{{- if and $worker (lt (int $worker) $needed) -}}
{{- $problems = append $problems (printf "worker.terminationGracePeriodSeconds is %d but a stop may take %d seconds: photos in progress would count an attempt." (int $worker) $needed) -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- $problems = append $problems "ingress.enabled is true but ingress.hosts is empty: name the host of the partner API." -}}
{{- end -}}
{{- if and .Values.ingress.enabled (lt (int (dig "PROXIES" 0 .Values.settings)) 1) -}}
{{- $problems = append $problems "ingress.enabled is true but settings.PROXIES is not at least 1: the wrong passwords and the searches of all visitors would be counted as those of the ingress. Set it to the number of proxies before the API (1 for an ingress alone)." -}}
{{- end -}}
{{- /* The service starts without it in a trial alone, whose links nobody but the machine of a port-forward follows. */ -}}
{{- $url := dig "PUBLIC_URL" "" .Values.settings -}}
{{- range .Values.extraEnv }}{{ if eq .name "PHOTOFINISH_PUBLIC_URL" }}{{ $url = .name }}{{ end }}{{ end -}}
{{- if and (or .Values.ingress.enabled (ne .Values.settings.ENVIRONMENT "local")) (not $url) -}}
{{- $problems = append $problems "settings.PUBLIC_URL is missing: links of galleries, invitations and downloads would lead to the pod. Say how people reach the service, such as https://photos.example.com." -}}
{{- end -}}
{{- if and .Values.console.ownService (not (dig "CONSOLE_URL" "" .Values.settings)) -}}
{{- $problems = append $problems "console.ownService is true but settings.CONSOLE_URL is missing: invitations would lead to the API. Say how people reach the console, such as https://console.example.com." -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- /* Headers contain tokens; a name that ends in _FILE, and a value that begins with file:, is the path of a secret. */ -}}
{{- if and .value (not (hasSuffix "_FILE" .name)) (not (hasPrefix "file:" (toString .value))) (regexMatch "(SECRET|PASSWORD|TOKEN|ACCESS_KEY|ACCOUNT_KEY|DATABASE_URL|QUEUE_URL|HEADERS)" .name) -}}
{{- $problems = append $problems (printf "extraEnv gives %s as plain text: use valueFrom.secretKeyRef." .name) -}}
{{- end -}}
{{- end -}}
{{- toJson $problems -}}
{{- end -}}
