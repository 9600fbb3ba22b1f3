{{/* Names and labels. A CronJob's name has at most 52 letters: 46 before `-sweep`. */}}

{{- define "photofinish.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 46 | trimSuffix "-" -}}
{{- end -}}

{{- define "photofinish.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 46 | trimSuffix "-" -}}
{{- else if contains (include "photofinish.name" .) .Release.Name -}}
{{- .Release.Name | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "photofinish.name" .) | trunc 46 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels that select pods. Takes (dict "root" $ "component" "api"). */}}
{{- define "photofinish.selector" -}}
app.kubernetes.io/name: {{ include "photofinish.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "photofinish.labels" -}}
{{ include "photofinish.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_") }}
{{- end -}}

{{/* The labels of the metrics of any API or worker of this release in Prometheus. */}}
{{- define "photofinish.anyPod" -}}
{{- printf "namespace=\"%s\",service=~\"%s-(api|worker)-admin\"" .Release.Namespace (include "photofinish.fullname" .) -}}
{{- end -}}

{{/* Where a pod listens. Takes (list $ 8080). */}}
{{- define "photofinish.listen" -}}
{{- $address := default "0.0.0.0" (first .).Values.service.listenAddress -}}
{{- printf (ternary "[%s]:%d" "%s:%d" (contains ":" $address)) $address (index . 1) -}}
{{- end -}}

{{- define "photofinish.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "photofinish.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "photofinish.image" -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- include "photofinish.imageName" (list .Values.image.repository $tag .Values.image.digest) -}}
{{- end -}}

{{- define "photofinish.workerImage" -}}
{{- $own := .Values.worker.image -}}
{{- $tag := default (default .Chart.AppVersion .Values.image.tag) $own.tag -}}
{{- /* The digest of another repository or tag would name another image. */ -}}
{{- $digest := ternary $own.digest .Values.image.digest (or $own.repository $own.tag $own.digest | not | not) -}}
{{- include "photofinish.imageName" (list (default .Values.image.repository $own.repository) $tag $digest) -}}
{{- end -}}

{{/* Takes (list "repository" "tag" "digest"). With a digest the tag is for people only. */}}
{{- define "photofinish.imageName" -}}
{{- $digest := index . 2 -}}
{{- printf "%s:%s" (index . 0) (index . 1) -}}{{- if $digest -}}@{{ $digest }}{{- end -}}
{{- end -}}

{{/*
A value as it was written. Helm parses the numbers of a file as floats and would write a million as 1e+06, which is no
whole number to Kubernetes, KEDA and the service.
*/}}
{{- define "photofinish.number" -}}
{{- if kindIs "invalid" . -}}
{{- /* null: the field is left to Kubernetes */ -}}
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* The egress of a NetworkPolicy: DNS and parts of networkPolicy.egress. Takes (list $ "database" "queue"). */}}
{{- define "photofinish.egress" -}}
{{- $egress := (first .).Values.networkPolicy.egress -}}
{{- $workloadIdentity := (first .).Values.storage.workloadIdentity -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- range rest . }}
{{- if or (ne . "identity") $workloadIdentity }}
{{- with index $egress . }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The argument is a URL. */}}
{{- define "photofinish.portOf" -}}
{{- $url := urlParse . -}}
{{- default (ternary "443" "80" (eq $url.scheme "https")) (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host)) -}}
{{- end -}}

{{/* Seconds from SIGTERM (or preStop) to SIGKILL. */}}

{{/* The server's own limit for requests in flight is 30 seconds. */}}
{{- define "photofinish.apiDrainSeconds" -}}
{{- add (int .Values.api.preStopSeconds) 30 15 -}}
{{- end -}}

{{- define "photofinish.workerDrainSeconds" -}}
{{- add (int (default 20 .Values.settings.DRAIN_SECONDS)) 30 -}}
{{- end -}}

{{/* How long a worker may take to start before it is restarted; 10 and 3 are the defaults of Kubernetes. */}}
{{- define "photofinish.workerStartSeconds" -}}
{{- $probe := .Values.worker.probes.startup -}}
{{- mul (int (default 10 $probe.periodSeconds)) (int (default 3 $probe.failureThreshold)) -}}
{{- end -}}

{{- define "photofinish.apiGraceSeconds" -}}
{{- include "photofinish.number" (default (include "photofinish.apiDrainSeconds" .) .Values.api.terminationGracePeriodSeconds) -}}
{{- end -}}

{{- define "photofinish.workerGraceSeconds" -}}
{{- include "photofinish.number" (default (include "photofinish.workerDrainSeconds" .) .Values.worker.terminationGracePeriodSeconds) -}}
{{- end -}}
