{{/* What the pods of the API, of the workers and of the jobs have in common. */}}

{{/* No root, no new privileges, no writable files except scratch, only the system calls of the runtime's profile. */}}
{{- define "photofinish.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ include "photofinish.number" .Values.securityContext.runAsUser }}
runAsGroup: {{ include "photofinish.number" .Values.securityContext.runAsGroup }}
fsGroup: {{ include "photofinish.number" .Values.securityContext.runAsGroup }}
# Always would make what is on a volume writable for the group at each start, and the service uses no such cache of kernels.
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "photofinish.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Scratch space, which is deleted with the pod. Everything durable is in the database and the storage. */}}
{{- define "photofinish.mounts" -}}
- name: data
  mountPath: /var/lib/photofinish
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "photofinish.volumes" -}}
- name: data
  emptyDir: {sizeLimit: {{ .Values.scratch.data }}}
- name: tmp
  emptyDir: {sizeLimit: {{ .Values.scratch.tmp }}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The three URLs, their credentials, and the settings. */}}
{{- define "photofinish.environment" -}}
- name: PHOTOFINISH_DATA_DIR
  value: /var/lib/photofinish
- name: PHOTOFINISH_DATABASE_URL
  {{- include "photofinish.secret" (list .Values.database.existingSecret .Values.database.key) | nindent 2 }}
- name: PHOTOFINISH_QUEUE_URL
  {{- include "photofinish.secret" (list .Values.queue.existingSecret .Values.queue.key) | nindent 2 }}
- name: PHOTOFINISH_QUEUE_STREAM
  value: {{ .Values.queue.stream | quote }}
- name: PHOTOFINISH_STORAGE_URL
  value: {{ .Values.storage.url | quote }}
{{- with .Values.storage.publicEndpoint }}
- name: PHOTOFINISH_STORAGE_PUBLIC_ENDPOINT
  value: {{ . | quote }}
{{- end }}
- name: AWS_REGION
  value: {{ .Values.storage.region | quote }}
{{- with .Values.storage.endpoint }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- if .Values.storage.allowHttp }}
- name: AWS_ALLOW_HTTP
  value: "true"
{{- end }}
{{- if not .Values.storage.workloadIdentity }}
- name: AWS_ACCESS_KEY_ID
  {{- include "photofinish.secret" (list .Values.storage.existingSecret .Values.storage.accessKeyIdKey) | nindent 2 }}
- name: AWS_SECRET_ACCESS_KEY
  {{- include "photofinish.secret" (list .Values.storage.existingSecret .Values.storage.secretAccessKeyKey) | nindent 2 }}
{{- end }}
{{- with .Values.secretKey.existingSecret }}
- name: PHOTOFINISH_SECRET_KEY
  {{- include "photofinish.secret" (list . $.Values.secretKey.key) | nindent 2 }}
{{- with $.Values.secretKey.oldKey }}
- name: PHOTOFINISH_SECRET_KEY_OLD
  {{- include "photofinish.secret" (list $.Values.secretKey.existingSecret .) | nindent 2 }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: PHOTOFINISH_{{ $name }}
  value: {{ include "photofinish.number" $value | quote }}
{{- end }}
{{- with .Values.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
- name: OTEL_TRACES_SAMPLER
  value: parentbased_traceidratio
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ include "photofinish.number" $.Values.tracing.samplingRatio | quote }}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: service.instance.id=$(POD_NAME),k8s.pod.name=$(POD_NAME),k8s.namespace.name={{ $.Release.Namespace }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "photofinish.secret" -}}
valueFrom:
  secretKeyRef:
    name: {{ index . 0 }}
    key: {{ index . 1 }}
{{- end -}}

{{/*
Takes the values of one deployment. A start may take as long as the models take to load. The startup probe checks
liveness and not readiness, so that an unavailable database restarts nothing.
*/}}
{{- define "photofinish.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: admin}
  {{- toYaml .probes.startup | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  {{- toYaml .probes.readiness | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: admin}
  {{- toYaml .probes.liveness | nindent 2 }}
{{- end -}}

{{/* Takes (dict "root" $ "own" .Values.api "component" "api"). */}}
{{- define "photofinish.podMetadata" -}}
labels:
  {{- include "photofinish.labels" (dict "root" .root "component" .component) | nindent 2 }}
  {{- with .own.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .own.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Takes the same. Spreads replicas over nodes, so that losing one node does not stop the whole service. */}}
{{- define "photofinish.placement" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "photofinish.selector" (dict "root" .root "component" .component) | nindent 8 }}
{{- with .own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/*
The pod of a job that runs one command of the API's image and ends. Takes (dict "root" $ "component" "migrate" "own"
.Values.migration "account" "NAME"); without a name it runs with the default account of the namespace.
*/}}
{{- define "photofinish.jobPod" -}}
metadata:
  labels:
    {{- include "photofinish.labels" (dict "root" .root "component" .component) | nindent 4 }}
spec:
  restartPolicy: Never
  {{- with .account }}
  serviceAccountName: {{ . }}
  {{- end }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    {{- include "photofinish.podSecurity" .root | nindent 4 }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "photofinish.image" .root | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: [{{ .component }}]
      env:
        {{- include "photofinish.environment" .root | nindent 8 }}
      securityContext:
        {{- include "photofinish.containerSecurity" .root | nindent 8 }}
      resources:
        {{- toYaml .own.resources | nindent 8 }}
      volumeMounts:
        {{- include "photofinish.mounts" .root | nindent 8 }}
  volumes:
    {{- include "photofinish.volumes" .root | nindent 4 }}
{{- end -}}
